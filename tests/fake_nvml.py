"""A stand-in for the NVML binding: some GPUs, and an error for whatever they do not support."""

from types import SimpleNamespace

GIB = 2**30


class NVMLError(Exception):
    pass


class FakeNvml:
    """Answers as pynvml does.

    `gpus` are dicts with `name`, `uuid`, `memory`; `slices` makes one a MIG parent, `lost` one that is gone.
    """

    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *gpus, unsupported=(), cuda_driver=13000):
        self.gpus = list(gpus)
        self.unsupported = set(unsupported)
        self.cuda_driver = cuda_driver

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in object.__getattribute__(self, "unsupported"):

            def refuse(*_):
                raise NVMLError("Not Supported")

            return refuse
        return object.__getattribute__(self, name)

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        for gpu in self.gpus:
            for handle in (gpu, *gpu.get("slices", [])):
                if handle["uuid"] == uuid:
                    return handle
        raise NVMLError("Not Found")

    def nvmlDeviceGetName(self, handle):
        return handle["name"].encode()

    def nvmlDeviceGetUUID(self, handle):
        return handle["uuid"]

    def nvmlDeviceGetMemoryInfo(self, handle):
        if handle.get("lost"):
            raise NVMLError("GPU is lost")
        return SimpleNamespace(total=handle["memory"], used=handle.get("used", 0))

    def nvmlDeviceGetPciInfo(self, handle):
        return SimpleNamespace(busId=b"0000:01:00.0")

    def nvmlSystemGetDriverVersion(self):
        return "570.10"

    def nvmlSystemGetCudaDriverVersion(self):
        return self.cuda_driver

    def nvmlDeviceGetCudaComputeCapability(self, handle):
        return (9, 0)

    def nvmlDeviceGetMigMode(self, handle):
        return [1, 1] if "slices" in handle else [0, 0]

    def nvmlDeviceIsMigDeviceHandle(self, handle):
        return handle["uuid"].startswith("MIG-")

    def nvmlDeviceGetMaxMigDeviceCount(self, handle):
        return len(handle["slices"])

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index):
        return handle["slices"][index]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):
        return next(gpu for gpu in self.gpus if handle in gpu.get("slices", []))

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return {1: 1500, 2: 2600}[kind]

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        return 1980

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return 61

    def nvmlDeviceGetPowerUsage(self, handle):
        return 350_500

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return 700_000

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return handle.get("throttle", 0)

    def nvmlDeviceGetPerformanceState(self, handle):
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=25, memory=10)

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in handle.get("processes", [])]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        return handle.get("energy_mj", 0)


def h100(number=0, **more):
    return {"name": "NVIDIA H100 80GB HBM3", "uuid": f"GPU-{number}aaa-bbbb", "memory": 80 * GIB, **more}


def a100(number=0, **more):
    return {"name": "NVIDIA A100-SXM4-40GB", "uuid": f"GPU-{number}ccc-dddd", "memory": 40 * GIB, **more}
