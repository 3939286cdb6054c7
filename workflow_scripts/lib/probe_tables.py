"""Rows of the probes' tables, but attention's: what each record holds, with its statistics, in columns with units."""

import math
import statistics
from typing import Any

from workflow_scripts.lib.counts import count_parameters
from workflow_scripts.lib.operator_counts import count_rows, softmax_flops
from workflow_scripts.lib.specs import ModelShape, from_json

ACCUMULATION_COLUMNS = (
    "device probe sum_format term_format upcast terms value exact error input_error sum_error status reason record"
).split()
AUTOCAST_COLUMNS = (
    "device probe model precision status reason products parameters first_linear normalisation residual_stream logits "
    "loss gradients n_steps largest_loss_difference first_gradient_distance largest_gradient_distance "
    "least_gradient_cosine record"
).split()
AUTOCAST_STEP_COLUMNS = (
    "device probe model precision step loss_value loss_fp32 loss_difference gradient_distance gradient_cosine"
).split()
CLOCK_COLUMNS = (
    "device probe model mode precision execution batch_size sequence_length status reason host_s device_s wall_s "
    "n_kernels host_share device_share bound timeline nsys_s nsys_kernels nsys record"
).split()
OPERATOR_COLUMNS = (
    "device probe model mode precision execution status reason operator category phase calls_per_step self_time_s "
    "share flops moved_bytes self_memory_bytes record"
).split()
ADAMW_BYTES = 28  # for each parameter: it, its gradient and two moments are read, all but the gradient written
# A step whose device is busy for less of the wall time than this, while the host is for more, waits to be launched.
BUSY = 0.85


def accumulation_rows(record: dict[str, Any], path: str) -> list[dict[str, Any]]:
    """The rows of one record."""
    found = (record["result"] or {}).get("rows", [])
    common = _common(record, path)
    return [{**common, **row} for row in found] or [common]


def autocast_rows(record: dict[str, Any], path: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """One row a precision, and one a precision and step."""
    rows, steps = [], []
    common = {**_common(record, path), "model": record["spec"]["name"]}
    for found in (record["result"] or {}).get("rows", []):
        row = {**common, **{key: found.get(key) for key in ("precision", "status", "reason", "products")}}
        row |= {point.replace(" ", "_"): dtype for point, dtype in (found.get("dtypes") or {}).items()}
        series = zip(*(found.get(key, []) for key in SERIES), strict=True)
        own = [
            {**row, "step": step, "loss_value": loss, "loss_fp32": plain, "gradient_distance": distance,
             "gradient_cosine": cosine, "loss_difference": None if loss is None or plain is None else loss - plain}
            for step, (loss, plain, distance, cosine) in enumerate(series, start=1)
        ]  # fmt: skip
        distances = [step["gradient_distance"] for step in own if step["gradient_distance"] is not None]
        cosines = [step["gradient_cosine"] for step in own if step["gradient_cosine"] is not None]
        differences = [abs(step["loss_difference"]) for step in own if step["loss_difference"] is not None]
        row |= {
            "n_steps": len(own) or None,
            "largest_loss_difference": max(differences, default=None),
            "first_gradient_distance": own[0]["gradient_distance"] if own else None,
            "largest_gradient_distance": max(distances, default=None),
            "least_gradient_cosine": min(cosines, default=None),
        }
        rows.append(row)
        steps += own
    return rows or [common], steps


SERIES = ("loss", "loss_fp32", "gradient_distance", "gradient_cosine")

KEPT_CLOCKS = ("sequence_length", "mode", "status", "reason", "n_kernels", "nsys_s", "nsys_kernels", "nsys")


def clock_rows(record: dict[str, Any], path: str) -> list[dict[str, Any]]:
    """One row a mode and context length."""
    asked, result = record["spec"], record["result"] or {}
    common = {**_common(record, path), "model": asked["name"], **_step(asked), "timeline": result.get("timeline")}
    rows = []
    for found in result.get("rows", []):
        times = {key: statistics.median(found[key]) if found.get(key) else None for key in ("host_s", "wall_s")}
        device_s, wall_s, host_s = found.get("device_s"), times["wall_s"], times["host_s"]
        shares = {
            "host_share": host_s / wall_s if host_s and wall_s else None,
            "device_share": device_s / wall_s if device_s and wall_s else None,
        }
        kept = {key: found.get(key) for key in KEPT_CLOCKS}
        rows.append({**common, **kept, **times, **shares, "device_s": device_s, "bound": bound(**shares)})
    return rows or [common]


def bound(*, host_share: float | None, device_share: float | None) -> str | None:
    """Tells what a step waits for: `launch`, `device`, `both` in part, or `one clock` where the host is the device."""
    if host_share is None:
        return None
    if device_share is None:
        return "one clock"
    if device_share >= BUSY:
        return "device"
    return "launch" if host_share >= BUSY else "both"


def operator_rows(record: dict[str, Any], path: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The operators of each mode, with what no profiler counts; and counts beside those that layers ask for."""
    asked, result = record["spec"], record["result"] or {}
    common = {**_common(record, path), "model": asked["name"], **_step(asked)}
    rows = [{**common, **row} for row in result.get("rows", [])]
    for row in rows:
        if row.get("category") == "softmax" and row.get("flops") is None:
            row["flops"] = softmax_flops(row["operator"], row["calls_per_step"], asked)
        if row.get("operator") == "aten::_fused_adamw_":  # a list of tensors, which shows no shapes
            row["moved_bytes"] = ADAMW_BYTES * count_parameters(from_json(ModelShape, asked["model"])).total
    counts = [{**common, **row} for row in count_rows(rows, asked, result.get("observed") or {})]
    return rows or [common], counts


def _common(record: dict[str, Any], path: str) -> dict[str, Any]:
    return {
        "device": record["spec"]["device"]["id"],
        "probe": record["id"],
        "status": record["status"],
        "reason": record["reason"],
        "record": path,
    }


def _step(asked: dict[str, Any]) -> dict[str, Any]:
    return {key: asked["step"][key] for key in ("precision", "execution", "batch_size")}


def shares_sum(rows: list[dict[str, Any]]) -> float:
    """What the shares of one mode add up to: 1, or something has been counted twice."""
    return math.fsum(row["share"] for row in rows)
