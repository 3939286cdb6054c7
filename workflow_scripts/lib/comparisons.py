"""Comparing measured values: pooled over repeats, as ratios with intervals, and with a verdict only where one is due.

Every threshold behind an adjective of the report stands here, in `THRESHOLDS`.
"""

import dataclasses
import math
from typing import Literal

import pandas as pd

THRESHOLDS = {
    "same": 0.02,  # an interval wholly within this fraction of one is called "same"
    "noise_floor": 0.01,  # gaps below this are not ranked where no repeats say how large the noise is
    "listed_ratio": 0.10,  # ratios further than this from one are named beside a claim that two models are matched
    "seeds": 3,  # fewer seeds than this do not settle which of two losses is lower
    "spike": 1.5,  # a step slower than this many medians of its run is called a spike
    "interval": 0.95,  # confidence of the intervals that the tables hold
}
AXES = {
    "batch_size": "batch size",
    "sequence_length": "context",
    "precision": "precision",
    "execution": "execution",
}
INTENDED = ("n_layer", "n_embd")  # in these a wide and a deep model are meant to differ
_REFERENCE = {"precision": ("fp32", "tf32", "bf16", "fp16"), "execution": ("eager", "compiled", "graphed")}

Verdict = Literal["faster", "slower", "same", "undecided"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its interval (None: spread unknown), from `n` measurements whose records are named."""

    value: float
    low: float | None
    high: float | None
    n: int
    records: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio of two estimates; its interval sets the ends of theirs against each other, so it errs to the wide side."""

    value: float
    low: float | None
    high: float | None
    records: tuple[str, ...]

    def inverse(self) -> "Ratio":
        low, high = (None, None) if self.low is None else (1 / self.high, 1 / self.low)
        return dataclasses.replace(self, value=1 / self.value, low=low, high=high)


def pool(rows: pd.DataFrame, column: str) -> Estimate | None:
    """Pools repeats of one measurement: the median, and the envelope of the intervals that each repeat has.

    `column` names the value with its unit last (`throughput_tokens_per_s`); its interval is looked for in the columns
    with `_low` and `_high` before the unit.
    """
    rows = rows[rows[column].notna()]
    if rows.empty:
        return None
    stem, unit = next((column.removesuffix(u), u) for u in ("_tokens_per_s", "_s", "") if column.endswith(u))
    low, high = (rows.get(f"{stem}_{end}{unit}", pd.Series(dtype=float)) for end in ("low", "high"))
    known = len(low) == len(rows) and low.notna().all() and high.notna().all()
    return Estimate(
        value=float(rows[column].median()),
        low=float(low.min()) if known else None,
        high=float(high.max()) if known else None,
        n=len(rows),
        records=tuple(str(record) for record in rows.get("record", pd.Series(dtype=object)).dropna()),
    )


def ratio(a: Estimate, b: Estimate) -> Ratio:
    """Divides one estimate by another."""
    known = None not in (a.low, a.high, b.low, b.high) and min(a.low, b.low) > 0
    return Ratio(
        value=a.value / b.value,
        low=a.low / b.high if known else None,
        high=a.high / b.low if known else None,
        records=a.records + b.records,
    )


def verdict(compared: Ratio, noise_floor: float | None = None) -> Verdict:
    """Says whether the first of two is faster, for a ratio of throughputs.

    Faster or slower needs an interval clear of one and a gap above the noise floor; an unknown spread decides nothing.
    """
    if compared.low is None:
        return "undecided"
    if max(abs(compared.low - 1), abs(compared.high - 1)) <= THRESHOLDS["same"]:
        return "same"
    gap = math.expm1(abs(math.log(compared.value)))
    floor = THRESHOLDS["noise_floor"] if noise_floor is None else noise_floor
    if compared.low <= 1 <= compared.high or gap <= floor:
        return "undecided"
    return "faster" if compared.value > 1 else "slower"


def noise_floor(processes: pd.DataFrame, device: str) -> float | None:
    """The largest spread between processes of one cell seen on a device, as a fraction; None if nothing was repeated."""
    rows = processes[processes.device == device] if "device" in processes else processes
    spread = rows["spread"].dropna() if "spread" in rows else rows
    return None if spread.empty else float(spread.max())


def effects(cells: pd.DataFrame) -> pd.DataFrame:
    """Pairs cells that differ in one axis only and divides their throughputs.

    Returns:
        One row a pair: device, model, axis, reference, value, ratio, low, high (of throughput), record_reference and
        record. The reference is fp32, eager, or the smallest value of that model on that device.
    """
    rows = []
    keys = ["device", "model", "attention", *AXES]
    cells = cells.sort_values([*keys, "process"], kind="stable")
    for axis in AXES:
        others = [key for key in keys if key != axis]
        for fixed, group in cells.groupby(others, sort=True):
            by_value = {value: pool(same, "throughput_tokens_per_s") for value, same in group.groupby(axis)}
            present = [value for value in by_value if by_value[value] is not None]
            if len(present) < 2:
                continue
            order = _REFERENCE.get(axis, sorted(present))
            reference = min(present, key=lambda value, order=order: order.index(value) if value in order else 99)
            for value in present:
                if value != reference:
                    pair = ratio(by_value[value], by_value[reference])
                    rows.append({
                        **dict(zip(others, fixed, strict=True)), "axis": axis, "reference": str(reference),
                        "value": str(value), "ratio": pair.value, "low": pair.low, "high": pair.high,
                        "record_reference": by_value[reference].records[0] if by_value[reference].records else None,
                        "record": by_value[value].records[0] if by_value[value].records else None,
                    })  # fmt: skip
    columns = [*keys, "reference", "value", "ratio", "low", "high", "record_reference", "record", "axis"]
    return pd.DataFrame(rows, columns=columns).astype({"ratio": float, "low": float, "high": float})
