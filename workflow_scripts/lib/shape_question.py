"""What one shape would cost, asked without a workflow: parameters, FLOPs, memory, and step time on known devices.

Nothing here imports torch, and what a study knows is read only where a study is named.
"""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workflow_scripts.lib.counts import count_parameters, flops_per_token
from workflow_scripts.lib.memory_model import MemoryEstimate, estimate_memory
from workflow_scripts.lib.quantities import count, percent, quantity, span, unit_for
from workflow_scripts.lib.specs import DeviceType, ModelShape, OptimizerSpec, StepSpec

DEFAULT_STUDY = "laptop"
MEMORY_TYPES: tuple[DeviceType, ...] = ("cpu", "cuda")


def check_shape(shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec) -> None:
    """Refuses a shape or a step that cannot be.

    Raises:
        ValueError: names the option, its value, and what to do.
    """
    if shape.n_embd % shape.n_head:
        raise ValueError(f"--n-embd is {shape.n_embd}, no multiple of --n-head {shape.n_head}: choose one")
    if shape.architecture == "llama" and shape.n_embd // shape.n_head % 2:
        raise ValueError(
            f"--n-embd over --n-head is {shape.n_embd // shape.n_head}, odd: RoPE turns pairs, choose an even one"
        )
    if step.batch_size % step.accumulation:
        raise ValueError(
            f"--accumulation is {step.accumulation}, which does not divide --batch-size {step.batch_size}: "
            "choose a divisor"
        )
    if step.execution == "graphed" and optimizer.name not in ("adamw", "sgd"):
        raise ValueError(
            f"--execution graphed needs an optimizer that reads its rate on the device, which {optimizer.name} does "
            "not: choose --optimizer adamw or sgd, or --execution compiled"
        )


def answer(
    shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec, study: str | None, root: Path
) -> dict[str, Any]:
    """Answers for one shape, in plain JSON values.

    Args:
        shape: the model.
        step: batch, precision, execution.
        optimizer: its name counts, for memory and time.
        study: whose devices are asked; None for those of the default study, of which nothing need be known.
        root: where results/ and recordings/ lie.

    Raises:
        ValueError: nothing is known of the devices of a study that was named.
    """
    devices, unknown = [], None
    try:
        devices = _on_devices(study or DEFAULT_STUDY, root, shape, step, optimizer)
    except ValueError as fault:
        if study:
            raise
        unknown = f"nothing is known of a device: {fault}"
    types = MEMORY_TYPES[1:] if step.execution == "graphed" or step.precision == "tf32" else MEMORY_TYPES  # CUDA's own
    flops = flops_per_token(shape, shape.sequence_length)
    tokens = step.batch_size * shape.sequence_length
    return {
        "shape": dataclasses.asdict(shape),
        "step": dataclasses.asdict(step),
        "optimizer": optimizer.name,
        "parameters": dataclasses.asdict(count_parameters(shape)),
        "flops_per_token": dataclasses.asdict(flops),
        "tokens_per_step": tokens,
        "flops_per_step": tokens * flops.training,
        "memory": {kind: _memory(estimate_memory(shape, step, optimizer, kind)) for kind in types},
        "devices": devices,
        "step_time_unknown": unknown,
    }


def _memory(estimate: MemoryEstimate) -> dict[str, Any]:
    """The peak of allocated memory, what it consists of, and the peak of each phase, in bytes."""
    return {"peak_bytes": estimate.peak_bytes, "at_peak_bytes": estimate.at_peak, "phases_bytes": estimate.phases}


def _on_devices(study: str, root: Path, shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec) -> list[dict]:
    if not any((root / where / study).is_dir() for where in ("results", "recordings")):
        raise ValueError(
            f"--study {study} has neither results nor recordings in {root}: run it first, or name another --study"
        )
    from workflow_scripts.lib.known_devices import known_devices  # needs more imports than the rest together

    devices, forecaster = known_devices(root / "results" / study, root / "recordings" / study)
    told = []
    for device in devices:
        expected = forecaster.forecast(device["device"], shape, step, optimizer)
        memory = _memory(forecaster.memory(device["device"], shape, step, optimizer))
        memory_bytes = int(float(device["memory_bytes"])) if device.get("memory_bytes") else None
        time_s = expected.step_time_s
        reason = f"no cost model of {step.precision} {step.execution} steps was fitted on {device['device']}"
        told.append({
            "device": device["device"], "name": device["name"], "type": device["type"], "origin": device["origin"],
            "step_time_s": time_s, "step_time_low_s": expected.low_s, "step_time_high_s": expected.high_s,
            "bound": expected.bound, "not_predicted": None if time_s else reason,
            "throughput_tokens_per_s": step.batch_size * shape.sequence_length / time_s if time_s else None,
            "memory": memory, "memory_bytes": memory_bytes,
            "fits": memory["peak_bytes"] <= memory_bytes if memory_bytes else None,
        })  # fmt: skip
    return told


def as_json(told: dict[str, Any]) -> str:
    """The answer for programs."""
    return json.dumps(told, indent=1, allow_nan=False, ensure_ascii=False)


def as_text(told: dict[str, Any]) -> str:
    """The answer for people."""
    shape, step = told["shape"], told["step"]
    parameters, flops = told["parameters"], told["flops_per_token"]
    lines = [
        f"{shape['architecture']}: {shape['n_layer']} layers, {shape['n_head']} heads, {shape['n_embd']:,} wide, "
        f"vocabulary {shape['vocab_size']:,}, context {shape['sequence_length']:,}",
        f"step: batch {step['batch_size']:,} ({count(told['tokens_per_step'])} tokens), {step['precision']}, "
        f"{step['execution']}, {told['optimizer']}",
        "",
        f"{'parameters':<24}{count(parameters['total'])} ({count(parameters['non_embedding'])} without embeddings)",
        f"{'FLOPs per token':<24}{quantity(flops['training'], 'FLOPs')} in training "
        f"({quantity(flops['forward'], 'FLOPs')} forward)",
        f"{'FLOPs per step':<24}{quantity(told['flops_per_step'], 'FLOPs')}",
        "",
        *_memory_lines(_memory_by_place(told)),
    ]
    lines.append("")
    lines += [_device_line(device) for device in told["devices"]] or [f"{'step time':<24}{told['step_time_unknown']}"]
    return "\n".join(line.rstrip() for line in lines)


def _memory_by_place(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The memory on each known device, and on a device of each type of which none is known."""
    types, devices = told["memory"], told["devices"]
    known = {device["type"] for device in devices}
    # Where a CPU is not asked, the step is CUDA's own.
    places = {one["device"]: one["memory"] for one in devices if one["type"] == "cuda" or "cpu" in types}
    return places | {f"any {kind}": estimate for kind, estimate in types.items() if kind not in known}


def _memory_lines(memory: dict[str, Any]) -> list[str]:
    """A column for each place, a row for each kind that the peak consists of."""
    kinds = list(dict.fromkeys(kind for estimate in memory.values() for kind in estimate["at_peak_bytes"]))
    kinds.sort(key=lambda kind: -max(estimate["at_peak_bytes"].get(kind, 0) for estimate in memory.values()))

    width = max(14, *(len(f"on {place}  ") for place in memory))

    def row(title: str, cells: Iterable[str]) -> str:
        return f"{title:<24}" + "".join(f"{cell:<{width}}" for cell in cells)

    def sizes(values: Iterable[int]) -> Iterable[str]:
        return (quantity(value, "bytes") if value else "–" for value in values)

    head = row("peak allocated memory", (f"on {place}" for place in memory))
    rows = [row(f"  {kind}", sizes(each["at_peak_bytes"].get(kind, 0) for each in memory.values())) for kind in kinds]
    total = row("  in all", sizes(each["peak_bytes"] for each in memory.values()))
    older = "  (any cuda: before Hopper, whose products keep some 50 MiB more, and without what compiling takes)"
    return [head, *rows, total, *([older] if "any cuda" in memory else [])]


def _device_line(device: dict[str, Any]) -> str:
    """One line on a device: step time with its interval, throughput, what bounds it, whether the model fits."""
    title = f"on {device['device']}" + (", recorded" if device["origin"] == "recorded" else "")
    if device["not_predicted"]:
        return f"{title:<24}not predicted: {device['not_predicted']}"
    low, high = device["step_time_low_s"], device["step_time_high_s"]
    scale, unit = unit_for([device["step_time_s"]], "s")
    interval = f" ({span(low, high, scale)} {unit})" if low is not None else ""
    told = f"{quantity(device['step_time_s'], 's')} a step{interval}, "
    told += quantity(device["throughput_tokens_per_s"], "tokens/s")
    if device["bound"]:
        told += f", bound by {device['bound']}"
    if device["fits"] is False:
        told += f"; does not fit: {percent(device['memory']['peak_bytes'] / device['memory_bytes'])} of its memory"
    return f"{title:<24}{told}"
