"""NVIDIA GPUs as the driver's management library (NVML) sees them, in the order in which CUDA will number them.

CUDA counts only what CUDA_VISIBLE_DEVICES names, in its order; NVML counts all, by PCI bus. Measuring processes run
with CUDA_DEVICE_ORDER=PCI_BUS_ID, so that plain numbers mean the same in both (CUDA C++ Programming Guide, environment
variables).
"""

import contextlib
import importlib
import os
from collections.abc import Callable
from typing import Any


def load() -> Any | None:
    """The NVML binding, initialised for the life of this process; None without an NVIDIA driver."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # no package, no library, no driver, no permission: no GPU for us
        return None
    return nvml


def text(value: bytes | str) -> str:
    """Older bindings answer in bytes."""
    return value.decode() if isinstance(value, bytes) else value


def ask(function: Callable[..., Any], *arguments: Any) -> Any | None:
    """Calls a query that a GPU or driver may not support; None then."""
    try:
        return function(*arguments)
    except Exception:  # NVML raises one class per error code; all mean "not readable"
        return None


def visible_handles(nvml: Any) -> list[Any]:
    """NVML's handles of the devices cuda:0, cuda:1 … of this process."""
    count = ask(nvml.nvmlDeviceGetCount) or 0
    handles = [handle for i in range(count) if (handle := ask(nvml.nvmlDeviceGetHandleByIndex, i)) is not None]
    stated = os.environ.get("CUDA_VISIBLE_DEVICES")
    if stated is None:
        return [_first_instance(nvml, handle) for handle in handles]
    chosen: list[Any] = []
    for word in stated.split(","):
        handle = _resolve(nvml, handles, word.strip())
        if handle is None:  # CUDA ignores an entry that it does not know, and all that follow
            break
        chosen.append(handle)
    return chosen


def has_mig(nvml: Any, handle: Any) -> bool:
    """Whether the handle is a slice of a GPU, or a GPU cut into slices (multi-instance GPU)."""
    if ask(nvml.nvmlDeviceIsMigDeviceHandle, handle):
        return True
    mode = ask(nvml.nvmlDeviceGetMigMode, handle)
    return bool(mode and mode[0])


def parent(nvml: Any, handle: Any) -> Any:
    """The whole GPU that a slice belongs to; a whole GPU itself."""
    if ask(nvml.nvmlDeviceIsMigDeviceHandle, handle):
        return ask(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle) or handle
    return handle


def _first_instance(nvml: Any, handle: Any) -> Any:
    """Of a GPU cut into slices, CUDA shows the first slice only."""
    if has_mig(nvml, handle):
        for i in range(ask(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            instance = ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, i)
            if instance is not None:
                return instance
    return handle


def _resolve(nvml: Any, handles: list[Any], word: str) -> Any | None:
    with contextlib.suppress(ValueError):
        index = int(word)
        return _first_instance(nvml, handles[index]) if 0 <= index < len(handles) else None
    if word.startswith("MIG-"):
        return ask(nvml.nvmlDeviceGetHandleByUUID, word) or ask(nvml.nvmlDeviceGetHandleByUUID, word.encode())
    matching = [h for h in handles if word.startswith("GPU-") and (ask_uuid(nvml, h) or "").startswith(word)]
    return matching[0] if len(matching) == 1 else None


def ask_uuid(nvml: Any, handle: Any) -> str | None:
    """The GPU's own name, `GPU-…` or `MIG-…`."""
    uuid = ask(nvml.nvmlDeviceGetUUID, handle)
    return None if uuid is None else text(uuid)
