"""Memory that a measuring process used, each quantity under its own name; what nobody can tell stays None.

Allocated is what live tensors took, reserved what torch's allocator held for them (freed blocks included), process what
the driver charges to this process (its context, libraries and captured graphs included), device what the whole device
had in use, other processes included. The host's share of the process is measured from outside it.
"""

import os
from typing import Any

import torch


def peak_memory(device: torch.device) -> dict[str, Any]:
    """Reads the device memory of this process since its start, in bytes.

    Returns:
        `peak_allocated_bytes`, `peak_reserved_bytes`, `process_device_bytes` and `device_used_bytes` (both at this
        moment), `method`. On a CPU nothing counts allocations while steps are timed, so all are None.
    """
    found: dict[str, Any] = dict.fromkeys(
        ("peak_allocated_bytes", "peak_reserved_bytes", "process_device_bytes", "device_used_bytes")
    )
    if device.type == "cuda":
        found["peak_allocated_bytes"] = torch.cuda.max_memory_allocated(device)
        found["peak_reserved_bytes"] = torch.cuda.max_memory_reserved(device)
        return {**found, **from_driver(device), "method": "torch.cuda counters; NVML at the end"}
    if device.type == "mps":
        # The pool does not shrink by itself, so what it holds at the end is close to its peak.
        found["peak_reserved_bytes"] = torch.mps.driver_allocated_memory()
        return {**found, "method": "torch.mps.driver_allocated_memory, read at the end"}
    return {**found, "method": "not measured"}


def reset_peak_memory(device: torch.device) -> None:
    """Starts the peaks anew and gives cached blocks back, so that earlier work does not count."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    elif device.type == "mps":
        torch.mps.empty_cache()


def from_driver(device: torch.device) -> dict[str, int | None]:
    """Asks NVML; None where it is missing or, as in some containers, does not know our process id."""
    found: dict[str, int | None] = {"process_device_bytes": None, "device_used_bytes": None}
    try:
        import pynvml

        pynvml.nvmlInit()
        # By UUID: torch counts only visible devices, NVML all.
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        found["device_used_bytes"] = pynvml.nvmlDeviceGetMemoryInfo(handle).used
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            if process.pid == os.getpid():
                found["process_device_bytes"] = process.usedGpuMemory
    except (ImportError, AttributeError, pynvml_error()):
        pass
    return found


def pynvml_error() -> type[Exception]:
    """NVML's exception, or one that is never raised where NVML is not installed."""
    try:
        import pynvml
    except ImportError:
        return ImportError
    return pynvml.NVMLError
