"""Torch's own view of a device, taken in a measuring process: what it finds, supports, and can compile with."""

import importlib.util
import os
import shutil
from collections.abc import Callable
from typing import Any

import torch

from workflow_scripts.lib.cuda_allocator import VARIABLE
from workflow_scripts.lib.outcome import Unavailable
from workflow_scripts.lib.specs import DeviceSpec, from_json

_PRODUCT_SIZE = 64


def probe_device(arguments: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Looks at a device as a measurement will find it.

    Args:
        arguments: `device`, a `DeviceSpec` as JSON.
        send: unused; nothing takes long here.

    Returns:
        `torch`, `cuda` (versions), `threads` and `interop_threads` in use, `name`, `memory_bytes`, `uuid`,
        `compute_capability` as torch gives them, `cpu_capability` (widest vector instructions used), `mkldnn`,
        `bf16_native` and `fp16_native` (instructions for it, None where torch does not say), `products` (dtype to
        whether a small matrix product works in it), `compiler`, `triton`.

    Raises:
        Unavailable: this build of torch, or the driver, cannot use the device.
    """
    device = from_json(DeviceSpec, arguments["device"])
    _require(device)
    native = _native_types(device)
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        **_properties(device),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "mkldnn": torch.backends.mkldnn.is_available(),
        "bf16_native": native["bf16"],
        "fp16_native": native["fp16"],
        "products": {str(dtype).removeprefix("torch."): _multiplies(device, dtype) for dtype in _DTYPES},
        "compiler": cpp_compiler(),
        "triton": importlib.util.find_spec("triton") is not None,
    }


_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def cpp_compiler() -> str | None:
    """Path of the C++ compiler that compiled cells will use: what CXX names, or g++, clang++; None without one."""
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        found = shutil.which(name.split()[0]) if name else None
        if found:
            return found
    return None


def _require(device: DeviceSpec) -> None:
    try:
        torch.zeros(1, device=device.torch_name)
    except (RuntimeError, AssertionError) as error:
        # WSL 2 and shared virtual GPUs cannot always map memory as segments that grow need it.
        advice = f"; try {VARIABLE}=expandable_segments:False" if "CUDA driver error" in str(error) else ""
        raise Unavailable(f"torch {torch.__version__} cannot use {device.torch_name}: {error}{advice}") from error


def _properties(device: DeviceSpec) -> dict[str, Any]:
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device.index or 0)
        return {
            "name": found.name,
            "memory_bytes": found.total_memory,
            "uuid": str(found.uuid) if hasattr(found, "uuid") else None,
            "compute_capability": f"{found.major}.{found.minor}",
        }
    memory = torch.mps.recommended_max_memory() if device.type == "mps" else None
    return {"name": None, "memory_bytes": memory, "uuid": None, "compute_capability": None}


def _native_types(device: DeviceSpec) -> dict[str, bool | None]:
    """Whether the device has instructions for 16-bit products; without them they are emulated, and slow."""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device.index or 0)
        return {"bf16": major >= 8, "fp16": (major, minor) >= (7, 0)}  # tensor cores: CUDA C++ Programming Guide
    if device.type == "cpu":
        # Private names of torch; where a version has others, we do not know.
        bf16 = [_ask_cpu(name) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")]
        return {"bf16": any(bf16) if None not in bf16 else None, "fp16": _ask_cpu("_is_amx_fp16_supported")}
    return {"bf16": None, "fp16": None}


def _ask_cpu(name: str) -> bool | None:
    function = getattr(torch.cpu, name, None)
    return None if function is None else bool(function())


def _multiplies(device: DeviceSpec, dtype: torch.dtype) -> bool:
    try:
        ones = torch.ones(_PRODUCT_SIZE, _PRODUCT_SIZE, device=device.torch_name, dtype=dtype)
        return (ones @ ones).eq(_PRODUCT_SIZE).all().item()
    except RuntimeError:
        return False
