"""A look at the machine around a measurement: what was hot, throttled, busy or on battery while it ran.

A snapshot costs milliseconds. What a machine does not tell is None, and its name stands in `not_readable`; nothing is
guessed. Rates follow from two snapshots of the measuring process (`between`): its own load is then told from others'.
The job that waits for it may look meanwhile (`Watch`).
"""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from workflow_scripts.lib import nvml as nvml_library
from workflow_scripts.lib.core_time import confined, on_usable_cores, own_cpu_s
from workflow_scripts.lib.gpu_processes import held_bytes, others_on
from workflow_scripts.lib.outcome import Outcome
from workflow_scripts.lib.specs import DeviceSpec

_MHZ = 10**6
# Bits of nvmlClocksEventReasons (NVML API reference); "idle" and an application's own clocks are no throttling.
_THROTTLE_REASONS = {
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal, software",
    0x040: "thermal, hardware",
    0x080: "power brake",
}
_ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
POWERCAP = Path("/sys/class/powercap")


def snapshot(device: DeviceSpec, *, nvml: Any | None = None, system: Any = psutil) -> dict[str, Any]:
    """Reads the state of the host and, for a CUDA device, of its GPU.

    Args:
        device: where the measurement runs.
        nvml: an initialised binding of NVML; by default the installed one.
        system: psutil, or what a test puts in its place.

    Returns:
        `host`: `cpu_frequency_hz`, `cpu_frequency_max_hz` (means over cores), `cpu_governor`, `cpu_throttle_count`,
        `temperature_c` (hottest sensor of the processor), `load_1min` (runnable processes; None where this process may
        use a part of the cores only, since it is told for all), `on_mains`, `battery_share` (0 to 1),
        `memory_available_bytes`, `swap_used_bytes`, and the counters `busy_cpu_s` (all processes) and `steal_cpu_s`
        (taken by the hypervisor), both on the cores that this process may use, `own_cpu_s` (this process and all that
        it started) and `energy_j` (of all processor packages).
        `gpu` (None unless `device` is CUDA): `uuid` (which of several equal cards), `sm_clock_hz`, `sm_clock_max_hz`,
        `memory_clock_hz`, `temperature_c`,
        `power_w`, `power_limit_w`, `throttle_reasons` (list), `performance_state`, `utilisation_share`,
        `memory_used_bytes`, `other_processes`, `other_memory_bytes`, `energy_j` (counter).
        `monotonic_s`: when, on this machine's monotonic clock. `not_readable`: names of what is None.
    """
    host = _read(_host_readers(system))
    gpu = None
    if device.type == "cuda":
        binding, handle = _gpu(device, nvml)
        gpu = _read(_gpu_readers(binding, handle) if handle is not None else dict.fromkeys(_GPU_NAMES, _nothing))
    missing = [f"{part}.{name}" for part, read in (("host", host), ("gpu", gpu or {})) for name in _missing(read)]
    return {"monotonic_s": time.monotonic(), "host": host, "gpu": gpu, "not_readable": missing}


def between(before: dict[str, Any], after: dict[str, Any]) -> dict[str, float | None]:
    """Derives rates from two snapshots of one process.

    Returns:
        `others_cores`: processor cores that other processes kept busy on average; `stolen_cores`: cores' worth of time
        that the hypervisor gave to other machines; `elapsed_s`. None where a counter is missing.
    """
    elapsed = after["monotonic_s"] - before["monotonic_s"]

    def rate(name: str) -> float | None:
        first, last = (state["host"].get(name) for state in (before, after))
        return None if first is None or last is None or elapsed <= 0 else (last - first) / elapsed

    busy, own = rate("busy_cpu_s"), rate("own_cpu_s")
    return {
        "elapsed_s": elapsed,
        "others_cores": None if busy is None or own is None else max(0.0, busy - own),
        "stolen_cores": rate("steal_cpu_s"),
    }


def energy_j(device: DeviceSpec, *, nvml: Any | None = None, packages: Path = POWERCAP) -> float | None:
    """Energy that the GPU, or on a CPU all processor packages, have used so far, in joules; None where not counted.

    Sources: nvmlDeviceGetTotalEnergyConsumption, in millijoules, from Volta on (NVML API reference); the kernel's
    powercap framework (RAPL), in microjoules, readable for root only on many systems.
    """
    if device.type == "cpu":
        with contextlib.suppress(OSError, ValueError):
            return _packages_j(packages)
    if device.type != "cuda":
        return None
    binding, handle = _gpu(device, nvml)
    return None if handle is None else _nvml(binding, _ENERGY, handle, scale=1e-3)


def _read(readers: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, reader in readers.items():
        values[name] = None
        # Sensors fail in as many ways as there are machines; each only leaves its own value out.
        with contextlib.suppress(Exception):
            values[name] = reader()
    return values


def _missing(values: dict[str, Any]) -> list[str]:
    return [name for name, value in values.items() if value is None]


def _nothing() -> None:
    return None


def _host_readers(system: Any) -> dict[str, Callable[[], Any]]:
    return {
        "cpu_frequency_hz": lambda: _positive(system.cpu_freq().current * _MHZ),
        "cpu_frequency_max_hz": lambda: _positive(system.cpu_freq().max * _MHZ),
        "cpu_governor": lambda: _sys_cpu0("cpufreq/scaling_governor"),
        "cpu_throttle_count": lambda: int(_sys_cpu0("thermal_throttle/package_throttle_count")),
        "temperature_c": lambda: _cpu_temperature(system.sensors_temperatures()),
        "load_1min": lambda: None if confined(system) else system.getloadavg()[0],
        "on_mains": lambda: system.sensors_battery().power_plugged,
        "battery_share": lambda: system.sensors_battery().percent / 100,
        "memory_available_bytes": lambda: system.virtual_memory().available,
        "swap_used_bytes": lambda: system.swap_memory().used,
        "busy_cpu_s": lambda: on_usable_cores(system, ("user", "nice", "system", "irq", "softirq")),
        "own_cpu_s": own_cpu_s,
        "steal_cpu_s": lambda: on_usable_cores(system, ("steal",)),
        "energy_j": lambda: _packages_j(POWERCAP),
    }


def _packages_j(powercap: Path) -> float | None:
    """Sum over processor packages; their parts (`intel-rapl:0:1`) are within them."""
    found = [
        int((zone / "energy_uj").read_text()) for zone in powercap.glob("intel-rapl:*") if ":" not in zone.name[11:]
    ]
    return sum(found) * 1e-6 if found else None


def _positive(value: float) -> float | None:
    return value if value > 0 else None  # psutil says 0 where the kernel says nothing


def _sys_cpu0(name: str) -> str:
    return Path(f"/sys/devices/system/cpu/cpu0/{name}").read_text().strip()


def _cpu_temperature(sensors: dict[str, list[Any]]) -> float | None:
    chips = [
        readings for chip, readings in sensors.items() if chip in {"coretemp", "k10temp", "zenpower", "cpu_thermal"}
    ]
    return max((reading.current for readings in chips for reading in readings), default=None)


def _gpu(device: DeviceSpec, nvml: Any | None) -> tuple[Any, Any]:
    binding = nvml if nvml is not None else nvml_library.load()
    handles = [] if binding is None else nvml_library.visible_handles(binding)
    index = device.index or 0
    return binding, nvml_library.parent(binding, handles[index]) if index < len(handles) else None


def _nvml(nvml: Any, query: str, *arguments: Any, scale: float = 1) -> Any:
    value = nvml_library.ask(getattr(nvml, query), *arguments)
    return None if value is None else value * scale


def _gpu_readers(nvml: Any, handle: Any) -> dict[str, Callable[[], Any]]:
    def query(name: str, *arguments: Any, scale: float = 1) -> Callable[[], Any]:
        return lambda: _nvml(nvml, name, handle, *arguments, scale=scale)

    return {
        "uuid": lambda: nvml_library.ask_uuid(nvml, handle),
        "sm_clock_hz": query("nvmlDeviceGetClockInfo", getattr(nvml, "NVML_CLOCK_SM", 1), scale=_MHZ),
        "sm_clock_max_hz": query("nvmlDeviceGetMaxClockInfo", getattr(nvml, "NVML_CLOCK_SM", 1), scale=_MHZ),
        "memory_clock_hz": query("nvmlDeviceGetClockInfo", getattr(nvml, "NVML_CLOCK_MEM", 2), scale=_MHZ),
        "temperature_c": query("nvmlDeviceGetTemperature", getattr(nvml, "NVML_TEMPERATURE_GPU", 0)),
        "power_w": query("nvmlDeviceGetPowerUsage", scale=1e-3),
        "power_limit_w": query("nvmlDeviceGetEnforcedPowerLimit", scale=1e-3),
        "throttle_reasons": lambda: _throttle_reasons(_nvml(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)),
        "performance_state": query("nvmlDeviceGetPerformanceState"),
        "utilisation_share": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        "memory_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        "other_processes": lambda: len(others_on(nvml, handle)),
        "other_memory_bytes": lambda: held_bytes(others_on(nvml, handle)),
        "energy_j": query(_ENERGY, scale=1e-3),
    }


_GPU_NAMES = tuple(_gpu_readers(None, None))


def _throttle_reasons(bits: int | None) -> list[str] | None:
    return None if bits is None else [name for bit, name in _THROTTLE_REASONS.items() if bits & bit]


class Watch:
    """Looks at the machine about once a second, from the job that waits for a measuring process.

    A context manager. It looks only where that disturbs nothing: for a CPU that has a core to spare, or for a GPU.

    Args:
        device: where the measurement runs.
        every_s: seconds between two looks; doubled whenever `MOST` looks have been taken.
        look: takes a snapshot.
        n_cores: logical cores of this machine.
    """

    MOST = 60

    def __init__(
        self,
        device: DeviceSpec,
        every_s: float = 1.0,
        look: Callable[[DeviceSpec], dict[str, Any]] = snapshot,
        n_cores: int | None = None,
    ):
        self.device, self.every_s, self.look = device, every_s, look
        cores = n_cores if n_cores is not None else psutil.cpu_count() or 1
        self.allowed = device.type != "cpu" or cores > device.threads
        self.seen: list[dict[str, Any]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watch":
        if self.allowed:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self.allowed:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self.every_s):
            self.seen.append(_brief(self.look(self.device)))
            if len(self.seen) >= self.MOST:
                self.seen, self.every_s = self.seen[::2], 2 * self.every_s

    def put_into(self, outcome: Outcome) -> Outcome:
        """Adds what was seen while the process measured to its `machine`, as `during`; None where nobody looked."""
        machine = (outcome.result or {}).get("machine")
        if not machine:
            return outcome
        since, until = machine["before"]["monotonic_s"], (machine.get("after") or {}).get("monotonic_s", float("inf"))
        during = [one for one in self.seen if since <= one["monotonic_s"] <= until] if self.allowed else None
        return dataclasses.replace(outcome, result={**outcome.result, "machine": {**machine, "during": during}})


def _brief(state: dict[str, Any]) -> dict[str, Any]:
    """What of a snapshot changes while a measurement runs."""
    host, gpu = state["host"], state["gpu"]
    part = host if gpu is None else gpu
    return {
        "monotonic_s": state["monotonic_s"],
        "clock_hz": part.get("cpu_frequency_hz" if gpu is None else "sm_clock_hz"),
        "temperature_c": part.get("temperature_c"),
        "power_w": part.get("power_w"),
        "throttle_reasons": part.get("throttle_reasons"),
        "on_mains": host.get("on_mains"),
        "load_1min": host.get("load_1min"),
    }
