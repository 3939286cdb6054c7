"""Rows of the tables on memory over time: the peaks of each pass, the blocks that are there at a peak, the timeline."""

import math
from typing import Any

from workflow_scripts.lib.gpu import Gpu
from workflow_scripts.lib.memory_model import estimate_memory
from workflow_scripts.lib.memory_phases import PHASES
from workflow_scripts.lib.quantities import SPACE, count, quantity
from workflow_scripts.lib.specs import ModelShape, OptimizerSpec, StepSpec, from_json

# Kinds of the tables and the figure, from the categories of a trace.
KINDS = {
    "workspace and other": ("workspace", "data", "other"),
    "parameters": ("parameters",),
    "optimizer state": ("optimizer state",),
    "gradients": ("gradients",),
    "weight copies": ("weight copies",),
    "activations": ("activations",),
    "temporaries": ("temporaries",),
}
UNNAMED = ("workspace", "other")
HELD = ("parameters", "gradients", "optimizer state", "data")  # whose module is the name of a tensor
PASS_KEYS = ("device probe model precision batch_size sequence_length checkpointing mode").split()


def bytes_of(kind: str) -> str:
    """The column of a kind."""
    return f"{kind.replace(' ', '_')}_bytes"


PASS_COLUMNS = [
    *PASS_KEYS, "status", "reason", "peak_bytes", "peak_phase", "predicted_peak_bytes",
    *(name for phase in PHASES for name in (f"{phase}_peak_bytes", f"predicted_{phase}_bytes")),
    "unwatched_peak_bytes", "counted_peak_bytes", "unnamed_bytes",
    *(bytes_of(kind) for kind in KINDS),
    "data_bytes", "n_blocks", "n_events", "n_calls", "method", "snapshot", "record",
]  # fmt: skip
BLOCK_COLUMNS = [*PASS_KEYS, "category", "what", "layers", "arithmetic", "block_bytes", "n_blocks", "sum_bytes",
                 "peak_share", "record"]  # fmt: skip
TIMELINE_COLUMNS = [*PASS_KEYS, "place", "phase", *map(bytes_of, KINDS), "bytes", "is_peak"]


def pass_memory_rows(record: dict[str, Any], path: str) -> tuple[list[dict[str, Any]], ...]:
    """The rows of one record for the tables of passes, blocks and timelines."""
    asked = record["spec"]
    common = {"device": asked["device"]["id"], "probe": record["id"], "model": asked["name"], "record": path}
    passes, blocks, lines = [], [], []
    for found in (record["result"] or {}).get("rows", []):
        keys = ("precision", "batch_size", "sequence_length", "checkpointing", "mode", "status", "reason")
        row = {**common, **{key: found.get(key) for key in keys}}
        if found["status"] == "ok":
            row |= _peaks(found, asked, Gpu.of(record["environment"]))
            blocks += [{**row, **_block(block, found)} for block in found["blocks"]]
            lines += [{**row, **point} for point in _timeline(found)]
        passes.append(row)
    failed = {**common, "status": record["status"], "reason": record["reason"]}
    return passes or [failed], blocks, lines


def _peaks(found: dict[str, Any], asked: dict[str, Any], gpu: Gpu) -> dict[str, Any]:
    shape = next(model for model in asked["models"] if model["sequence_length"] == found["sequence_length"])
    step = next(step for step in asked["steps"] if step["precision"] == found["precision"])
    predicted = estimate_memory(
        from_json(ModelShape, shape),
        from_json(StepSpec, step),
        from_json(OptimizerSpec, asked["optimizer"]),
        asked["device"]["type"],
        resident_bytes=found["data_bytes"],
        mode=found["mode"],
        gpu=gpu,
        threads=asked["device"]["threads"],
    )
    phases, categories = found["phases"], found["categories"]
    sums = {kind: sum(categories.get(name, 0) for name in names) for kind, names in KINDS.items()}
    kept = ("peak_bytes", "unwatched_peak_bytes", "counted_peak_bytes", "data_bytes", "n_blocks", "n_events",
            "n_calls", "method", "snapshot")  # fmt: skip
    return {
        **{key: found[key] for key in kept},
        "peak_phase": max(phases, key=phases.__getitem__),
        "predicted_peak_bytes": predicted.peak_bytes,
        **{f"{phase}_peak_bytes": phases.get(phase) for phase in PHASES},
        **{f"predicted_{phase}_bytes": predicted.phases.get(phase) for phase in phases},
        "unnamed_bytes": sum(categories.get(name, 0) for name in UNNAMED),
        **{bytes_of(kind): size for kind, size in sums.items()},
    }


def _block(block: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    total = block["bytes"] * block["count"]
    return {
        "category": block["category"],
        "what": what(block),
        "layers": layers(block["layers"]),
        "arithmetic": arithmetic(block, found["batch_size"], found["sequence_length"]),
        "block_bytes": block["bytes"],
        "n_blocks": block["count"],
        "sum_bytes": total,
        "peak_share": total / found["peak_bytes"],
    }


def what(block: dict[str, Any]) -> str:
    """Names a block: the tensor that it holds, or the operator that gave it and where; or says that nobody knows."""
    if block["category"] in HELD:
        return block["module"]
    place = f"in {block['module']}" if block["module"] else "outside the blocks"
    if block["shape"] is not None:
        return f"{block['operator']} {place}"
    if block["inside"]:
        return f"no tensor that is seen: taken within {block['operator']} {place}"
    return "no tensor that is seen: taken before the pass"


def layers(numbers: list[int]) -> str | None:
    """Prints numbers of layers, those in a row as a range: 0–3, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first}–{last}" for first, last in runs) or None


def arithmetic(block: dict[str, Any], batch_size: int, sequence_length: int) -> str | None:
    """Prints how a block's bytes follow from its tensor: 16 × 128 × 768 × 2 bytes = 3 MiB; None without a tensor."""
    if block["shape"] is None:
        return None
    shape = list(block["shape"])
    if shape and shape[0] == batch_size * sequence_length:  # tokens of all sequences in one dimension
        shape = [batch_size, sequence_length, *shape[1:]]
    size = math.prod(shape) * block["element_bytes"]
    factors = [*(count(edge) for edge in shape), f"{block['element_bytes']}{SPACE}bytes"]
    text = f"{' × '.join(factors)} = {quantity(size, 'bytes')}"
    return text if size == block["bytes"] else f"{text}, in a block of {quantity(block['bytes'], 'bytes')}"


def _timeline(found: dict[str, Any]) -> list[dict[str, Any]]:
    line, starts = found["timeline"], sorted(found["phase_starts"].items(), key=lambda item: item[1])
    rows = []
    for n, place in enumerate(line["place"]):
        sums = {bytes_of(kind): sum(line[name][n] for name in names if name in line) for kind, names in KINDS.items()}
        phase = [name for name, start in starts if start <= place][-1]
        rows.append({"place": place, "phase": phase, **sums, "bytes": sum(sums.values()),
                     "is_peak": place == found["peak_place"]})  # fmt: skip
    return rows
