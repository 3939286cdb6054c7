"""Who else computes on a GPU, as its driver counts them."""

import os
import sys
from collections.abc import Iterable
from typing import Any


def others_on(nvml: Any, handle: Any) -> list[Any]:
    """Lists the processes on a GPU besides this one and its parent.

    Raises:
        LookupError: the driver's process numbers are not ours, as in a container, and so say nothing of who is who.
    """
    ours, torch = {os.getpid(), os.getppid()}, sys.modules.get("torch")
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    others = [process for process in processes if process.pid not in ours]
    if others and len(others) == len(processes) and torch is not None and torch.cuda.is_initialized():
        raise LookupError("this process computes on the GPU and is not listed")
    return others


def held_bytes(processes: Iterable[Any]) -> int | None:
    """The device memory that processes hold; None where the driver does not tell it of each."""
    held = [process.usedGpuMemory for process in processes]
    return None if None in held else sum(held)
