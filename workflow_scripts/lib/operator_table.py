"""Sums a profiler's events into one row per operator and phase, whose shares and an idle rest add up to 1.

Works on what `torch.profiler` gives as `events()`, or on anything with the same attributes.
"""

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from workflow_scripts.lib.operator_bytes import moved_bytes
from workflow_scripts.lib.operator_categories import IDLE, OVERHEADS, category_of

# Allocation is booked to the operator that asks for it, not to the call that carries it out.
_ALLOCATIONS = frozenset({"aten::empty", "aten::empty_strided", "aten::empty_like", "aten::resize_", "[memory]"})
_OPTIMIZER = "Optimizer.step"
_CPU_ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"
_INNER_ATTENTION = re.compile(r"aten::_(flash|efficient|cudnn)_attention_(forward|backward)")
_BACKWARD = "autograd::engine::evaluate_function"


class OperatorRow(NamedTuple):
    """One operator in one phase, per step; its fields are the columns of `operators.csv`. None is an empty field."""

    operator: str
    category: str
    phase: str  # forward, backward, optimizer; empty for the idle rest
    calls_per_step: float | None
    self_time_s: float  # on the device where there is one, else on the CPU; without what it called
    share: float  # of the wall time of the profiled steps
    flops: float | None  # multiplications and additions; None where no formula is known
    moved_bytes: float | None  # inputs read and outputs written once; None where no rule is known
    self_memory_bytes: float | None  # allocated less freed, by itself


@dataclasses.dataclass
class _Sum:
    calls: int = 0
    self_time_us: float = 0.0
    flops: float = 0.0
    moved_bytes: float = 0.0
    self_memory_bytes: float = 0.0


def sum_operators(events: Iterable[Any], *, n_steps: int, wall_s: float, on_device: bool) -> list[OperatorRow]:
    """Sums the events of `n_steps` steps that took `wall_s` together.

    Args:
        events: `FunctionEvent`s of the CPU's operators and, with `on_device`, of the device's kernels.
        n_steps: profiled steps.
        wall_s: wall time from before the first to after the last, synchronised, in s.
        on_device: count the time of kernels, each under the operator that launched it, or under its own name where no
            operator did (as in a replayed graph); else the CPU's time in operators.

    Returns:
        Rows, the longest first, the last one for the time in which nothing was seen. Shares sum to 1: where kernels
        overlap, and so sum to more than the wall time, they are shares of that sum, and nothing is idle.
    """
    sums: dict[tuple[str, str, str], _Sum] = defaultdict(_Sum)
    kernels: dict[str, _Sum] = defaultdict(_Sum)  # seen on the device, less what operators launched
    for event in events:
        on_host = event.device_type.name == "CPU"
        if event.name in OVERHEADS:
            continue
        if getattr(event, "is_user_annotation", False) and not (on_host and event.name.startswith(_OPTIMIZER)):
            continue  # marks around operators, which the device shows once more around kernels: no work of their own
        if not on_host:
            kernels[event.name].calls += 1
            kernels[event.name].self_time_us += event.self_device_time_total
            continue
        row = sums[key_of(event)]
        row.calls += 1
        row.flops += event.flops or attention_flops(event)
        row.moved_bytes += moved_bytes(event)
        memory = event.self_device_memory_usage if on_device else event.self_cpu_memory_usage
        sums[key_of(allocator_of(event))].self_memory_bytes += memory
        if not on_device:
            row.self_time_us += event.self_cpu_time_total
        for kernel in event.kernels if on_device else ():
            row.self_time_us += kernel.duration
            kernels[kernel.name].calls -= 1
            kernels[kernel.name].self_time_us -= kernel.duration
    for name, kernel in kernels.items():
        if on_device and kernel.calls > 0 and kernel.self_time_us > 0:
            sums[(name, category_of(name), "")] = kernel
    return _rows(sums, n_steps, wall_s)


def _rows(sums: dict[tuple[str, str, str], _Sum], n_steps: int, wall_s: float) -> list[OperatorRow]:
    traced_s = math.fsum(row.self_time_us for row in sums.values()) / 1e6
    total_s = max(wall_s, traced_s)
    rows = [
        OperatorRow(
            operator=operator,
            category=category,
            phase=phase,
            calls_per_step=row.calls / n_steps,
            self_time_s=row.self_time_us / 1e6 / n_steps,
            share=row.self_time_us / 1e6 / total_s,
            flops=row.flops / n_steps or None,
            moved_bytes=row.moved_bytes / n_steps or None,
            self_memory_bytes=row.self_memory_bytes / n_steps,
        )
        for (operator, category, phase), row in sums.items()
        if row.self_time_us or row.flops or row.self_memory_bytes
    ]
    rows.sort(key=lambda row: (-row.self_time_s, row.operator, row.phase))
    idle_s = total_s - traced_s
    idle = OperatorRow(
        operator=IDLE,
        category=IDLE,
        phase="",
        calls_per_step=None,
        self_time_s=idle_s / n_steps,
        share=idle_s / total_s,
        flops=None,
        moved_bytes=None,
        self_memory_bytes=None,
    )
    return [*rows, idle]


def key_of(event: Any) -> tuple[str, str, str]:
    """Gives name, category and phase of an operator; whatever an optimizer calls is the optimizer's."""
    phase = phase_of(event)
    return event.name, "optimizer" if phase == "optimizer" else category_of(event.name), phase


def phase_of(event: Any) -> str:
    """Tells by its callers in which phase an operator ran.

    `optimizer`, `backward`, or else `forward`, which so includes gathering the batch and parts of clipping.
    """
    names = [event.name, *(caller.name for caller in callers_of(event))]
    if any(category_of(name) == "optimizer" for name in names):
        return "optimizer"
    return "backward" if any(name.startswith(_BACKWARD) for name in names) else "forward"


def callers_of(event: Any) -> list[Any]:
    """Lists what an operator was called from, the nearest first."""
    callers = []
    while (event := event.cpu_parent) is not None:
        callers.append(event)
    return callers


def allocator_of(event: Any) -> Any:
    """Gives the operator that an allocation was made for: the nearest caller that does more than allocate."""
    if event.name not in _ALLOCATIONS:
        return event
    asked = (caller for caller in callers_of(event) if caller.name not in _ALLOCATIONS)
    caller = next(asked, event)
    return event if getattr(caller, "is_user_annotation", False) else caller


def attention_flops(event: Any) -> float:
    """FLOPs of fused attention, for which the profiler has no formula; the causal mask is not taken off.

    Forward: two products of 2 B H T S D. Backward: those of four gradients, and the scores once more (Dao 2022,
    "FlashAttention", section 3.1 and algorithm 4): five products.

    They are booked to the operator that takes the time: on a GPU that is one within the operator that knows the shapes
    of query (B, H, T, D) and key (B, H, S, D), its first inputs or, in a backward pass, those after a gradient. 0 for
    all other operators.
    """
    if _INNER_ATTENTION.fullmatch(event.name) and event.cpu_parent is not None:
        event = event.cpu_parent
    elif not event.name.startswith(_CPU_ATTENTION):
        return 0.0
    backward = event.name.endswith("_backward")
    queries_and_keys = event.input_shapes[1:3] if backward else event.input_shapes[:2]
    if [len(shape) for shape in queries_and_keys] != [4, 4]:
        return 0.0
    (batch, heads, length, size), keys = queries_and_keys
    return (5 if backward else 2) * 2.0 * batch * heads * length * keys[2] * size
