"""Passes of a step beside each other, and what precision and execution are worth, from the cells.

A backward pass alone is a forward and backward less a forward of the same work, an update a step less a forward and
backward. Both differences are of medians (and of means); their intervals set the ends of both sides against each
other, and so err to the wide side. Where the whole took no longer than its part, there is no difference to speak of.
"""

import math
from typing import Any, get_args

import pandas as pd

from workflow_scripts.lib.comparisons import Estimate, noise_floor, pool, ratio, verdict
from workflow_scripts.lib.quantities import is_missing
from workflow_scripts.lib.specs import Execution, Precision

WORK = ["device", "model", "n_params", "batch_size", "sequence_length", "attention"]
WAY = ["precision", "execution"]
PASS_COLUMNS = (
    "device model n_params batch_size sequence_length attention precision execution pass status reason time_s "
    "time_low_s time_high_s mean_s std_s cv n_samples peak_allocated_bytes over_forward over_forward_low "
    "over_forward_high record"
).split()
SPEEDUP_COLUMNS = (
    "device model n_params batch_size sequence_length attention mode precision execution time_s base_time_s speedup "
    "low high verdict memory_ratio record"
).split()
DIFFERENCES = {"backward": ("forward_backward", "forward"), "update": ("step", "forward_backward")}
PASSES = ("forward", "backward", "forward_backward", "update", "optimizer", "step")
PRECISIONS, EXECUTIONS = get_args(Precision), get_args(Execution)
BASE = ("fp32", "eager")
SIZES = 3  # models from which on one can speak of size


def pass_rows(cells: pd.DataFrame) -> list[dict[str, Any]]:
    """One row for each pass of each work and way of doing it: measured ones, and the two that are differences."""
    rows: list[dict[str, Any]] = []
    firsts = cells[cells.process == 1] if len(cells) else cells
    for keys, group in firsts.groupby([*WORK, *WAY], sort=False) if len(firsts) else ():
        named = dict(zip([*WORK, *WAY], keys, strict=True))
        found = {str(cell["mode"]): _measured(cell) for cell in group.to_dict("records")}
        for name, (whole, part) in DIFFERENCES.items():
            if _timed(found.get(whole)) and _timed(found.get(part)) and found[whole]["time_s"] > found[part]["time_s"]:
                found[name] = _difference(found[whole], found[part])
        forward = found.get("forward")
        for name in (name for name in PASSES if name in found):
            row = found[name]
            over = _over(row, forward) if _timed(row) and _timed(forward) else {}
            rows.append(named | {"pass": name} | row | over)
    return rows


def _measured(cell: dict[str, Any]) -> dict[str, Any]:
    mean, std = cell["step_time_mean_s"], cell["step_time_std_s"]
    return {
        "status": cell["status"],
        "reason": cell["reason"],
        "time_s": cell["step_time_s"],
        "time_low_s": cell["step_time_low_s"],
        "time_high_s": cell["step_time_high_s"],
        "mean_s": mean,
        "std_s": std,
        "cv": None if is_missing(std) else std / mean,
        "n_samples": cell["n_samples"],
        "peak_allocated_bytes": cell["peak_allocated_bytes"],
        "record": cell["record"],
    }


def _timed(row: dict[str, Any] | None) -> bool:
    return row is not None and not is_missing(row["time_s"])


def _difference(whole: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    mean = whole["mean_s"] - part["mean_s"]
    known = not any(is_missing(side[key]) for side in (whole, part) for key in ("time_low_s", "std_s"))
    std = math.hypot(whole["std_s"], part["std_s"]) if known else None
    return {
        "status": "ok",
        "reason": "",
        "time_s": whole["time_s"] - part["time_s"],
        "time_low_s": whole["time_low_s"] - part["time_high_s"] if known else None,
        "time_high_s": whole["time_high_s"] - part["time_low_s"] if known else None,
        "mean_s": mean,
        "std_s": std,
        "cv": std / mean if std is not None and mean > 0 else None,
        "n_samples": min(whole["n_samples"], part["n_samples"]),
        "record": whole["record"],
    }


def _over(row: dict[str, Any], forward: dict[str, Any]) -> dict[str, Any]:
    if row is forward:
        return {"over_forward": 1.0}
    compared = ratio(_estimate(row), _estimate(forward))
    return {"over_forward": compared.value, "over_forward_low": compared.low, "over_forward_high": compared.high}


def _estimate(row: dict[str, Any]) -> Estimate:
    low, high = (None if is_missing(row[key]) else row[key] for key in ("time_low_s", "time_high_s"))
    return Estimate(value=row["time_s"], low=low, high=high, n=1, records=())


def speedup_rows(cells: pd.DataFrame, processes: pd.DataFrame) -> list[dict[str, Any]]:
    """Each way of doing some work beside fp32, eager: how many times as fast, and how much of its peak memory."""
    timed = cells[cells.step_time_s.notna() & (cells.status == "ok")] if len(cells) else cells
    rows: list[dict[str, Any]] = []
    for keys, group in timed.groupby([*WORK, "mode"], sort=False) if len(timed) else ():
        ways = dict(list(group.groupby(WAY, sort=False)))
        if BASE not in ways:
            continue
        base = pool(ways[BASE], "step_time_s")
        floor = noise_floor(processes, str(keys[0]))
        for (precision, execution), members in ways.items():
            time = pool(members, "step_time_s")
            if (precision, execution) == BASE or base is None or time is None:
                continue
            compared = ratio(base, time)
            rows.append(
                dict(zip([*WORK, "mode"], keys, strict=True))
                | {
                    "precision": precision,
                    "execution": execution,
                    "time_s": time.value,
                    "base_time_s": base.value,
                    "speedup": compared.value,
                    "low": compared.low,
                    "high": compared.high,
                    "verdict": verdict(compared, floor),
                    "memory_ratio": members.peak_allocated_bytes.median() / ways[BASE].peak_allocated_bytes.median(),
                    "record": members.record.iloc[0],
                }
            )
    return rows


def of_sizes(rows: pd.DataFrame, least: int = SIZES) -> pd.DataFrame:
    """The rows of each device that have the batch and context of most models there; none for fewer than `least`."""
    if rows.empty:
        return rows
    kept = []
    for _, device in rows.groupby("device", sort=False):
        shapes = [group for _, group in device.groupby(["batch_size", "sequence_length"], sort=False)]
        most = max(shapes, key=lambda group: (group.model.nunique(), len(group)))
        kept += [most] if most.model.nunique() >= least else []
    return in_order(pd.concat(kept)) if kept else rows.head(0)


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Sorts rows by model, from small to large, by how exact and how fast, and by pass."""
    keys = [key for key in ("device", "n_params", *WAY, "pass", "mode") if key in rows]
    return rows.sort_values(keys, key=_places, kind="stable")


def _places(column: pd.Series) -> pd.Series:
    order = {"precision": PRECISIONS, "execution": EXECUTIONS, "pass": PASSES, "mode": PASSES}.get(str(column.name))
    return column if order is None else column.map(order.index)
