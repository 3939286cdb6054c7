"""What fits into a device's memory: decided for each cell and run when the workflow is read, by the closed form.

A leaf without torch. Of each series one cell beyond the border is tried all the same, so that every study tests the
prediction that it relies on.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from workflow_scripts.lib.gpu import Gpu
from workflow_scripts.lib.memory_model import N_RATES, estimate_memory
from workflow_scripts.lib.specs import CellSpec, DeviceSpec, DeviceType, Mode, ModelShape, OptimizerSpec, StepSpec

GIB = 2**30
# Room for the model's own error: with less, more steps are said to fit that do not; with more, more are left out that
# would. `benchmarks/prediction_memory.py` counts both.
MARGIN = 1.01
# Assume: this much of a device is not there for tensors: on a GPU its context, libraries and what the allocator cannot
# use for holes; on a CPU the operating system and a process with torch in it; Apple's GPU may wire three quarters.
RESERVE_GIB: dict[DeviceType, float] = {"cpu": 1.5, "cuda": 1.0}
MPS_SHARE = 0.75


@dataclasses.dataclass(frozen=True, kw_only=True)
class Room:
    """What a device offers the tensors of a step.

    `limit_bytes` is None where the device does not tell; `capped` says that the config sets it, not the device.
    `data_bytes` is what the study's tokens take on the device.
    """

    type: DeviceType
    limit_bytes: int | None
    capped: bool
    gpu: Gpu
    threads: int
    data_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Beyond:
    """A cell that is predicted not to fit: what it would need, and whether it is tried all the same."""

    needed_bytes: int
    tried: bool


def caps(asked: Any, devices: Sequence[DeviceSpec]) -> dict[str, float]:
    """Gives the `memory_gib` of the config's `devices`, by id; `devices` are its entries resolved, in their order."""
    entries = asked if isinstance(asked, list) else [{}] * len(devices)
    return {
        device.id: float(entry["memory_gib"])
        for device, entry in zip(devices, entries, strict=True)
        if isinstance(entry, dict) and entry.get("memory_gib") is not None
    }


def room(
    device: DeviceSpec, cap_gib: float | None, detected: Sequence[dict[str, Any]], vocab_size: int, n_characters: int
) -> Room:
    """Gives a device's memory, in whole GiB (noise in what a host reports must change no verdict), less the reserve.

    Args:
        device: the device.
        cap_gib: what tensors may take at most, if the config says so.
        detected: what `devices.detect_devices` found.
        vocab_size: of the study; up to 256 tokens take a byte each, else four.
        n_characters: of the training split, at least as many as its tokens.
    """
    found = next(one for one in detected if (one["type"], one["index"]) == (device.type, device.index))
    limits = []
    if found["memory_bytes"] is not None:
        whole = found["memory_bytes"] // GIB
        limits.append(MPS_SHARE * whole if device.type == "mps" else max(whole - RESERVE_GIB[device.type], 0.0))
    capped = cap_gib is not None and all(cap_gib < limit for limit in limits)
    limits += [cap_gib] * capped
    return Room(
        type=device.type,
        limit_bytes=int(min(limits) * GIB) if limits else None,
        capped=capped,
        gpu=Gpu.of(found),
        threads=device.threads,
        data_bytes=0 if device.type == "cpu" else n_characters * (1 if vocab_size <= 256 else 4),
    )


def needed_bytes(
    where: Room, model: ModelShape, step: StepSpec, optimizer: OptimizerSpec, n_batches: int, mode: Mode = "step"
) -> int:
    """Gives what a step would take of a device, with the margin.

    Args:
        where: the device's memory.
        model: the model.
        step: its step.
        optimizer: its optimizer.
        n_batches: steps that have windows of their own, whose offsets lie on the device.
        mode: the part of the step that runs.
    """
    offsets = 0 if where.type == "cpu" else 8 * n_batches * step.batch_size
    estimate = estimate_memory(
        model,
        step,
        optimizer,
        where.type,
        resident_bytes=where.data_bytes + offsets,
        mode=mode,
        gpu=where.gpu,
        threads=where.threads,
    )
    return int(MARGIN * estimate.peak_bytes)


def beyond(cells: Iterable[CellSpec], where: Room) -> dict[str, Beyond]:
    """Finds the cells of a device that do not fit, and of each series the least of them, which is tried.

    A series is an architecture in one precision, execution, mode and attention: within it, size, batch and context
    vary. A repeat in a further process is never the one that is tried.
    """
    if where.limit_bytes is None:
        return {}
    series: dict[tuple[str, ...], list[tuple[int, int, str]]] = {}
    for cell in cells:
        needed = needed_bytes(where, cell.model, cell.step, cell.optimizer, N_RATES, cell.mode)
        if needed > where.limit_bytes:
            step = cell.step
            key = (cell.model.architecture, step.precision, step.execution, cell.mode, step.attention)
            series.setdefault(key, []).append((cell.process, needed, cell.id))
    found = {}
    for members in series.values():
        first, *others = sorted(members)
        found[first[2]] = Beyond(needed_bytes=first[1], tried=True)
        found |= {cell: Beyond(needed_bytes=needed, tried=False) for _, needed, cell in others}
    return found


def outsized(where: Room, model: ModelShape, step: StepSpec, optimizer: OptimizerSpec, n_steps: int) -> dict[str, int]:
    """What the spec of a training or a profile says of its memory: the bytes needed where they are too many."""
    needed = needed_bytes(where, model, step, optimizer, n_steps)
    return {"predicted_oom": needed} if where.limit_bytes is not None and needed > where.limit_bytes else {}
