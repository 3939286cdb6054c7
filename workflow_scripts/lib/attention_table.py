"""Rows of attention.csv: what was measured of attention alone, beside what it would take at the device's best."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from workflow_scripts.lib.estimates import estimate

ATTENTION_COLUMNS = (
    "device probe backend compiled precision head_size sequence_length batch_size n_head status reason n_passes "
    "forward_s forward_low_s forward_high_s backward_s backward_low_s backward_high_s first_s before_backward_bytes "
    "peak_bytes score_bytes score_matrices predicted_bytes capacity_bytes ideal_forward_s ideal_backward_s "
    "forward_ratio backward_ratio ideal_bound memory_method record"
).split()
ITEM_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
# Products of 2 B H T² D: Q Kᵀ and P V; backwards those of four gradients, and for kernels that keep no scores Q Kᵀ once
# more (Dao 2022, "FlashAttention", algorithm 4). The ideal is the one that needs less: four.
PRODUCTS = {"forward": 2, "backward": 4}
# Matrices of B H T D that must move: Q, K, V in and O out; backwards those and dO in, dQ, dK and dV out.
MOVED = {"forward": 4, "backward": 8}


def attention_rows(record: dict[str, Any], ceilings: pd.DataFrame, path: str) -> list[dict[str, Any]]:
    """The rows of one record; ratios are None where the device's best is not known in that precision."""
    device, result = record["spec"]["device"]["id"], record["result"] or {}
    rows = []
    for row in result.get("rows", []):
        flop_per_s, bytes_per_s = best_of(ceilings, device, row["precision"])
        size = row["batch_size"] * row["n_head"] * row["sequence_length"]
        scores = size * row["sequence_length"] * ITEM_BYTES[row["precision"]]
        common = {key: row[key] for key in ATTENTION_COLUMNS if key in row}
        measured: dict[str, Any] = {}
        for direction in ("forward", "backward"):
            samples = row.get(f"{direction}_s") or []
            time = estimate(samples)
            flops_s = PRODUCTS[direction] * 2.0 * size * row["sequence_length"] * row["head_size"] / flop_per_s
            bytes_s = MOVED[direction] * size * row["head_size"] * ITEM_BYTES[row["precision"]] / bytes_per_s
            ideal = max(flops_s, bytes_s)
            known = ideal == ideal and time.median is not None
            measured |= {
                "n_passes": time.n or None,
                f"{direction}_s": time.median,
                f"{direction}_low_s": time.low,
                f"{direction}_high_s": time.high,
                f"ideal_{direction}_s": ideal if ideal == ideal else None,
                f"{direction}_ratio": time.median / ideal if known else None,
            }
            measured["ideal_bound"] = None if ideal != ideal else "FLOPs" if flops_s >= bytes_s else "bytes"
        before = row.get("before_backward_bytes")
        rows.append(
            {
                **common,
                **measured,
                "device": device,
                "probe": record["id"],
                "compiled": "compiled" if row["compiled"] else "eager",
                "score_bytes": scores,
                "score_matrices": before / scores if before else None,
                "capacity_bytes": result.get("capacity_bytes"),
                "record": path,
            }
        )
    return rows + [_end(record, ended, path) for ended in result.get("ended", [])] or [_whole(record, path)]


def _end(record: dict[str, Any], ended: dict[str, Any], path: str) -> dict[str, Any]:
    """A backend whose process ended before its last combination."""
    return {
        "device": record["spec"]["device"]["id"],
        "probe": record["id"],
        "backend": (ended.get("backends") or [None])[0],
        "compiled": "compiled" if (ended.get("compiled") or [False])[0] else "eager",
        "status": ended["status"],
        "reason": ended["reason"],
        "record": path,
    }


def _whole(record: dict[str, Any], path: str) -> dict[str, Any]:
    return _end(record, {"status": record["status"], "reason": record["reason"]}, path)


def best_of(ceilings: pd.DataFrame, device: str, precision: str) -> tuple[float, float]:
    """Best FLOP/s and bytes/s of a device; NaN where not measured.

    Attention in half the bits may compute in float32, and on some CPUs is the faster for it: the better of both counts.
    """
    own = ceilings[ceilings.device == device] if len(ceilings) else ceilings
    if not len(own):
        return float("nan"), float("nan")
    products = own[own.quantity == "matrix_product"]
    rates = [_first(products[products.precision == name]["value"]) for name in (precision, "fp32")]
    known = [rate for rate in rates if rate == rate]
    return (max(known) if rates[0] == rates[0] else float("nan")), _first(own[own.quantity == "copy"]["value"])


def _first(values: Iterable[float]) -> float:
    return next((float(value) for value in values if value and value == value), float("nan"))


def borders(rows: pd.DataFrame) -> pd.DataFrame:
    """Where each series ends: the longest context that ran, the first that did not, and the bytes that explain it."""
    if not len(rows):
        return pd.DataFrame()
    found = []
    keys = ["device", "probe", "backend", "compiled", "precision", "head_size"]
    for values, series in rows[rows.sequence_length.notna()].groupby(keys, sort=False):
        series = series.sort_values("sequence_length")
        ran, ended = series[series.status == "ok"], series[series.status != "ok"]
        border: dict[str, Any] = dict(zip(keys, values, strict=True))
        last = ran.iloc[-1] if len(ran) else None
        first = ended.iloc[0] if len(ended) else None
        found.append(
            {
                **border,
                "longest": None if last is None else last.sequence_length,
                "peak_bytes": None if last is None else last.peak_bytes,
                "score_matrices": None if last is None else last.score_matrices,
                "ended_at": None if first is None else first.sequence_length,
                "ended_by": None if first is None else first.status,
                "ended_reason": None if first is None else first.reason,
                "needed_bytes": None if first is None else first.predicted_bytes,
                "capacity_bytes": series.iloc[0].capacity_bytes,
            }
        )
    return pd.DataFrame(found)
