"""The memory of one attention: what is there when its backward begins, and the peak of both directions.

On CUDA by the allocator's counters; on a CPU by the memory events of torch's profiler; else not measured.
"""

from collections.abc import Callable
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, record_function

from workflow_scripts.lib.host import memory_bytes

_MARK = "before backward"


def count_memory(
    draw: Callable[[], tuple[list[Tensor], Tensor]], attend: Callable[..., Tensor], device: torch.device
) -> dict[str, Any]:
    """Makes one pass and tells its memory, inputs and the gradient of the output included.

    Returns:
        `before_backward_bytes` and `peak_bytes`, None where nobody counts; `memory_method`.
    """
    if device.type == "cuda":
        return _on_cuda(draw, attend, device)
    if device.type == "cpu":
        return _on_cpu(draw, attend)
    return {"before_backward_bytes": None, "peak_bytes": None, "memory_method": "not measured"}


def _on_cuda(
    draw: Callable[[], tuple[list[Tensor], Tensor]], attend: Callable[..., Tensor], device: torch.device
) -> dict[str, Any]:
    base = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    inputs, gradient = draw()
    out = attend(*inputs)
    before = torch.cuda.memory_allocated(device) - base
    out.backward(gradient)
    peak = torch.cuda.max_memory_allocated(device) - base
    return {
        "before_backward_bytes": before,
        "peak_bytes": peak,
        "memory_method": "counters of torch.cuda's allocator, less what was there before",
    }


def _on_cpu(draw: Callable[[], tuple[list[Tensor], Tensor]], attend: Callable[..., Tensor]) -> dict[str, Any]:
    with torch.profiler.profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        inputs, gradient = draw()
        out = attend(*inputs)
        with record_function(_MARK):
            pass
        out.backward(gradient)
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    held = peak = 0
    before: int | None = None
    for event in events:
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
        elif event.name() == _MARK and before is None:
            before = held
    return {
        "before_backward_bytes": before,
        "peak_bytes": peak,
        "memory_method": "torch.profiler's memory events of the CPU allocator",
    }


def capacity_bytes(device: torch.device) -> int | None:
    """All the memory that the device has."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return memory_bytes() if device.type == "cpu" else None


def available_bytes() -> int:
    """The memory of the host that is free at this moment."""
    return min(memory_bytes(), psutil.virtual_memory().available)
