"""Comparing measured values: pooled over repeats, as ratios with intervals, and with a verdict only where one is due.

Every threshold behind an adjective of the report stands here, in `THRESHOLDS`.
"""

import dataclasses
import math
import numbers
import statistics
from typing import Any, Literal

import pandas as pd

from workflow_scripts.lib.quantities import is_missing

THRESHOLDS = {
    "same": 0.02,  # an interval wholly within this fraction of one is called "same"
    "noise_floor": 0.01,  # gaps below this are not ranked where no repeats say how large the noise is
    "listed_ratio": 0.10,  # ratios further than this from one are named beside a claim that two models are matched
    "seeds": 3,  # fewer seeds than this do not settle which of two losses is lower
    "interval": 0.95,  # confidence of the intervals that the tables hold
    "compute_share": 0.5,  # a step that reaches this share of the measured ceiling is bound by arithmetic
    "flat": 0.3,  # a step time that grows with the batch to a lower power than this is bound by launches
    "settled": 0.02,  # a loss within this share of its last value has converged
    "steady": 0.01,  # a loss that moved by less than this share over the last fifth of a run is in a steady state
    "settled_norm": 0.25,  # a gradient norm within this share of its last level has settled
    "spike_deviations": 6.0,  # a step this many robust deviations above its neighbours is a spike ...
    "spike_excess": 0.2,  # ... if it is also longer by this share
    "clock_drop": 0.05,  # a clock this share below its run's median is called a change
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
    """A ratio of two estimates; its interval sets the ends of theirs against each other, and so is rather too wide."""

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
    low, high = (
        list(rows[f"{stem}_{end}{unit}"]) if f"{stem}_{end}{unit}" in rows else [None] for end in ("low", "high")
    )
    known = not any(is_missing(value) for value in (*low, *high))
    return Estimate(
        value=statistics.median(float(value) for value in rows[column]),
        low=float(min(low)) if known else None,
        high=float(max(high)) if known else None,
        n=len(rows),
        records=tuple(str(record) for record in rows["record"] if not is_missing(record)) if "record" in rows else (),
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


def as_ratio(pair: Any) -> Ratio:
    """A row of `effects` as a ratio."""
    low, high = (None if is_missing(end) else end for end in (pair.low, pair.high))
    return Ratio(value=pair.ratio, low=low, high=high, records=(pair.record_reference, pair.record))


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
    """The largest spread between processes of one cell on a device, as a fraction; None if nothing was repeated."""
    rows = processes[processes.device == device] if "device" in processes else processes
    spread = rows["spread"].dropna() if "spread" in rows else rows
    return None if spread.empty else float(spread.max())


def effects(cells: pd.DataFrame) -> pd.DataFrame:
    """Pairs cells that differ in one axis only and divides their throughputs, repeats of a cell pooled.

    Returns:
        One row a pair: device, model, attention and the axes that both share; axis, reference, value (of the axis that
        they differ in); ratio, low, high (of throughput, value over reference); record_reference, record. The reference
        is fp32, eager, or the smallest value of that model on that device.
    """
    keys = ["device", "model", "attention", *AXES]
    cells = cells[cells.throughput_tokens_per_s.notna()].sort_values([*keys, "process"], kind="stable")
    pooled = {key: pool(rows, "throughput_tokens_per_s") for key, rows in cells.groupby(keys, sort=True)}
    rows = []
    for axis in AXES:
        place = keys.index(axis)
        groups: dict[tuple, dict] = {}
        for key, estimate in pooled.items():
            groups.setdefault((*key[:place], *key[place + 1 :]), {})[key[place]] = estimate
        for fixed, by_value in groups.items():
            order = _REFERENCE.get(axis, sorted(by_value))
            reference = min(
                by_value, key=lambda value, order=order: order.index(value) if value in order else len(order)
            )
            for value in [value for value in by_value if value != reference]:
                pair = ratio(by_value[value], by_value[reference])
                rows.append({
                    **dict(zip([key for key in keys if key != axis], fixed, strict=True)),
                    "axis": axis, "reference": reference, "value": value,
                    "ratio": pair.value, "low": pair.low, "high": pair.high,
                    "record_reference": next(iter(by_value[reference].records), None),
                    "record": next(iter(by_value[value].records), None),
                })  # fmt: skip
    columns = [*keys, "axis", "reference", "value", "ratio", "low", "high", "record_reference", "record"]
    table = pd.DataFrame(rows, columns=columns).astype({"ratio": float, "low": float, "high": float})
    return table.sort_values(["device", "axis", "value"], key=_in_order, kind="stable", ignore_index=True)


def _in_order(column: pd.Series) -> pd.Series:
    """Sorts axes as `AXES` has them, and values from the smallest or most exact on."""
    if column.name == "axis":
        return column.map(list(AXES).index)
    if column.name == "value":
        places = [value for order in _REFERENCE.values() for value in order]
        numbered = {value: place for place, value in enumerate(places)}
        return column.map(lambda v: v if isinstance(v, numbers.Integral) else numbered.get(v, len(places)))
    return column
