"""What this machine can measure on, found without torch; the config key `devices`; what identifies a device."""

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from workflow_scripts.lib import host
from workflow_scripts.lib import nvml as nvml_library
from workflow_scripts.lib.cuda_allocator import allocator_settings
from workflow_scripts.lib.specs import DeviceSpec

_ID = re.compile(r"[a-z0-9][a-z0-9_-]*")
_ENTRY = re.compile(r"(cpu|mps|cuda)(?::(\d+))?")
_ENTRY_KEYS = {"id", "type", "index", "threads", "memory_gib"}
_GIB = 2**30


def detect_devices(nvml: Any | None = None) -> list[dict[str, Any]]:
    """Lists the CPU, the visible CUDA GPUs and Apple's GPU, in this order.

    Args:
        nvml: a binding of NVML that is already initialised; by default the installed one, if a driver answers.

    Returns:
        A dict for each device: `id`, `type`, `index`, `name`, `threads` (default for measuring on it), `memory_bytes`;
        the CPU's also with `physical_cores` and `logical_cores` available to this process, a GPU's with `uuid`,
        `driver`, `cuda_driver` (newest CUDA that the driver knows), `compute_capability`, `pci_bus_id`, `mig`,
        `host_cpu`. What cannot be read is None.
    """
    cpu = _detect_cpu()
    beside = {"threads": cpu["threads"], "host_cpu": cpu["name"], "logical_cores": cpu["logical_cores"]}
    devices = [cpu]
    binding = nvml if nvml is not None else nvml_library.load()
    if binding is not None:
        handles = nvml_library.visible_handles(binding)
        devices += [{**_describe_gpu(binding, handle, index), **beside} for index, handle in enumerate(handles)]
    if sys.platform == "darwin" and platform.machine() == "arm64":
        mps = {"id": "mps", "type": "mps", "index": None, "name": cpu["name"], "memory_bytes": cpu["memory_bytes"]}
        devices.append({**mps, "driver": f"macOS {platform.mac_ver()[0]}", **beside})
    return devices


def resolve_devices(config_value: Any, detected: list[dict[str, Any]]) -> list[DeviceSpec]:
    """Turns the config key `devices` into devices of this machine.

    `auto` takes the CPU, Apple's GPU, and of the CUDA GPUs one of each model; a GPU that this build of torch cannot use
    is left out. A list names devices as `cpu`, `mps`, `cuda`, `cuda:1`, or as a mapping with `type` and, if wanted,
    `id`, `index`, `threads` and `memory_gib` (which `fits` reads, and no measurement). An empty list is no device.

    Raises:
        ValueError: an entry that is malformed, not available here, or there twice; in one line, with what to do.
    """
    if config_value == "auto":
        return [_spec(device) for device in _choose(detected)]
    if not isinstance(config_value, list):
        raise ValueError(f"devices: {config_value!r} is neither 'auto' nor a list of devices; {_advice(detected)}")
    specs = [_resolve_entry(entry, detected) for entry in config_value]
    for what, values in (
        ("id", Counter(spec.id for spec in specs)),
        ("device", Counter(f"{spec.torch_name} with {spec.threads} threads" for spec in specs)),
    ):
        repeated = [value for value, count in values.items() if count > 1]
        if repeated:
            raise ValueError(f"devices: the {what} {repeated[0]!r} is there twice; name each device once")
    return specs


def left_out(detected: list[dict[str, Any]]) -> list[str]:
    """Says in a line each which GPUs `auto` leaves out because this build of torch cannot use them."""
    gpus = [device for device in detected if device["type"] == "cuda"]
    if torch_build()["cuda"] is None:
        faults = [f"torch {torch_build()['version']} is built without CUDA" for _ in gpus]
    else:
        faults = [driver_fault(device) for device in gpus]
    return [f"devices: auto leaves out {gpu['id']}: {fault}" for gpu, fault in zip(gpus, faults, strict=True) if fault]


def device_identity(device: DeviceSpec, detected: list[dict[str, Any]]) -> dict[str, Any]:
    """What makes two measurements on a device comparable: equal between calls, and between equal machines.

    Memory is in whole GiB, since a kernel update moves the exact figure; a GPU's serial identity is left out, since a
    scheduler hands out any of several equal ones.
    """
    found = _find(device.type, device.index, detected)
    if found is None:
        raise ValueError(f"devices: {device.torch_name!r} is not available here; {_advice(detected)}")
    memory = found["memory_bytes"]
    identity = {
        "type": device.type,
        "name": found["name"],
        "threads": device.threads,
        "memory_gib": None if memory is None else round(memory / _GIB),
    }
    if device.type == "cpu":
        return {**identity, "physical_cores": found["physical_cores"], "machine": platform.machine()}
    keys = ("driver", "host_cpu") if device.type == "mps" else ("driver", "compute_capability", "mig", "host_cpu")
    return {**identity, **{key: found[key] for key in keys}}


def environment(device: DeviceSpec, detected: list[dict[str, Any]]) -> dict[str, Any]:
    """What a measured value depends on besides code and config: the device's identity, torch's build and allocator."""
    allocator = {"allocator": allocator_settings()} if device.type == "cuda" else {}
    return {**device_identity(device, detected), "torch": torch_build()["version"], **allocator}


def captures_graphs(device: DeviceSpec, detected: list[dict[str, Any]]) -> bool:
    """Whether a compiled step can be captured as a CUDA graph here: Triton needs capability 7.0 and a C compiler."""
    found = _find(device.type, device.index, detected)
    capability = (found or {}).get("compute_capability")
    compilers = (os.environ.get("CC"), "gcc", "clang", "cc")
    return capability is not None and _major(capability) >= 7 and any(shutil.which(name) for name in compilers if name)


def torch_build() -> dict[str, str | None]:
    """Version with its build (`2.13.0+cpu`) and CUDA version of the installed torch, without importing it.

    Read from torch's own `version.py`, since the metadata of some builds lacks the part after the plus.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {"version": None, "cuda": None}
    path = Path(spec.origin).with_name("version.py")
    source = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = {}
    for name in ("__version__", "cuda"):
        match = re.search(rf"^{name}\s*(?::[^=\n]*)?=\s*['\"]([^'\"]+)['\"]", source, flags=re.MULTILINE)
        found[name] = match.group(1) if match else None
    return {"version": found["__version__"] or importlib.metadata.version("torch"), "cuda": found["cuda"]}


def _choose(detected: list[dict[str, Any]]) -> list[dict[str, Any]]:
    chosen, models = [], set()
    for device in detected:
        if device["type"] == "cuda":
            model = (device["name"], device["memory_bytes"])
            if torch_build()["cuda"] is None or driver_fault(device) or model in models:
                continue
            models.add(model)
        chosen.append(device)
    return chosen


def _spec(device: dict[str, Any], **changes: Any) -> DeviceSpec:
    values = {key: device[key] for key in ("id", "type", "index", "threads")}
    return DeviceSpec(**{**values, **changes})


def _resolve_entry(entry: Any, detected: list[dict[str, Any]]) -> DeviceSpec:
    advice = _advice(detected)
    values = entry if isinstance(entry, dict) else {"type": entry}
    unknown = set(values) - _ENTRY_KEYS
    if unknown:
        raise ValueError(
            f"devices: unknown key {min(unknown, key=str)!r} in {entry!r}; known are {sorted(_ENTRY_KEYS)}"
        )
    match = _ENTRY.fullmatch(values["type"]) if isinstance(values.get("type"), str) else None
    if match is None or (match[2] and match[1] != "cuda"):
        raise ValueError(f"devices: {entry!r} names no kind of device (cpu, cuda, cuda:N, mps); {advice}")
    index = values.get("index") if match[2] is None else int(match[2])
    if not _is_count(index, 0) or ("index" in values and values["index"] not in (None, index)):
        raise ValueError(f"devices: index {values.get('index')!r} in {entry!r} must be a whole number from 0")
    if match[1] == "cuda":
        index = index or 0
        if torch_build()["cuda"] is None:
            version = torch_build()["version"]
            raise ValueError(f"devices: {entry!r} needs CUDA, and torch {version} is built without it; {advice}")
    elif index is not None:
        raise ValueError(f"devices: {entry!r} has an index, which only cuda takes; remove it")
    found = _find(match[1], index, detected)
    if found is None:
        raise ValueError(f"devices: {entry!r} is not available here; {advice}")
    fault = driver_fault(found)
    if fault:
        raise ValueError(f"devices: {entry!r}: {fault}")
    return _spec(found, **_checked(values, found, entry))


def driver_fault(device: dict[str, Any]) -> str | None:
    """Says in one line why a GPU's driver cannot serve this build of torch; None where it can, or nothing is known.

    A driver serves every minor version of the CUDA that it knows (NVIDIA, CUDA Compatibility, minor version
    compatibility).
    """
    knows, needs = device.get("cuda_driver"), torch_build()["cuda"]
    if device["type"] != "cuda" or knows is None or needs is None or _major(knows) >= _major(needs):
        return None
    return (
        f"driver {device['driver']} of {device['name']} knows CUDA up to {knows}, and torch {torch_build()['version']} "
        f"needs CUDA {_major(needs)}: update the driver, or install a torch built for CUDA {_major(knows)}"
    )


def _major(version: str) -> int:
    return int(version.split(".")[0])


def _checked(values: dict[str, Any], found: dict[str, Any], entry: Any) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if values.get("id") is not None:
        if not isinstance(values["id"], str) or not _ID.fullmatch(values["id"]):
            raise ValueError(f"devices: id {values['id']!r} in {entry!r} must match {_ID.pattern}; choose another")
        changes["id"] = values["id"]
    if values.get("threads") is not None:
        most = found["logical_cores"]
        if not _is_count(values["threads"], 1) or values["threads"] > most:
            raise ValueError(f"devices: threads {values['threads']!r} in {entry!r} must be a number from 1 to {most}")
        changes["threads"] = values["threads"]
    return changes


def _is_count(value: Any, least: int) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least)


def _find(kind: str, index: int | None, detected: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((device for device in detected if device["type"] == kind and device["index"] == index), None)


def _advice(detected: list[dict[str, Any]]) -> str:
    names = [
        f"{device['type']}{'' if device['index'] is None else ':' + str(device['index'])} ({device['name']})"
        for device in detected
        if device["type"] != "cuda" or torch_build()["cuda"] is not None
    ]
    return f"available are {', '.join(names)}; name one of these, or write 'devices: auto'"


def _describe_gpu(nvml: Any, handle: Any, index: int) -> dict[str, Any]:
    ask = nvml_library.ask
    whole = nvml_library.parent(nvml, handle)
    name, memory, pci = ask(nvml.nvmlDeviceGetName, handle), ask(nvml.nvmlDeviceGetMemoryInfo, handle), None
    info = ask(nvml.nvmlDeviceGetPciInfo, whole)
    if info is not None:
        pci = nvml_library.text(info.busId)
    driver, capability = ask(nvml.nvmlSystemGetDriverVersion), ask(nvml.nvmlDeviceGetCudaComputeCapability, whole)
    cuda = ask(nvml.nvmlSystemGetCudaDriverVersion)  # 12040 for CUDA 12.4
    return {
        "id": f"cuda{index}",
        "type": "cuda",
        "index": index,
        "name": f"GPU {index}" if name is None else nvml_library.text(name),
        "uuid": nvml_library.ask_uuid(nvml, handle),
        "memory_bytes": None if memory is None else memory.total,
        "driver": None if driver is None else nvml_library.text(driver),
        "cuda_driver": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
        "pci_bus_id": pci,
        "mig": nvml_library.has_mig(nvml, handle),
    }


def _detect_cpu() -> dict[str, Any]:
    logical, physical = host.available_cores()
    return {
        "id": "cpu",
        "type": "cpu",
        "index": None,
        "name": host.cpu_name(),
        "threads": physical,
        "memory_bytes": host.memory_bytes(),
        "physical_cores": physical,
        "logical_cores": logical,
    }
