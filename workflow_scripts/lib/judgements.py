"""Ways of judging a claim that several documents make: speed-ups, variation, what warm-up is worth."""

from collections.abc import Callable, Iterable

import pandas as pd

from workflow_scripts.lib.evidence import CANNOT, DOES_NOT, HOLDS, Evidence, Judgement
from workflow_scripts.lib.quantities import listing, percent, plural, times


def variation_below(evidence: Evidence, models: list[str], limit: float) -> Judgement:
    """Judges the coefficient of variation of forward and backward in fp32, eager, of some models."""
    passes = evidence["passes"]
    rows = passes[passes.model.isin(models) & passes.cv.notna()] if len(passes) else passes
    if len(rows):
        rows = rows[(rows["pass"] == "forward_backward") & (rows.precision == "fp32") & (rows.execution == "eager")]
    if rows.empty:
        return CANNOT, "no forward and backward pass in fp32 was timed often enough"
    told = listing(f"{percent(row.cv)} for `{row.model}` on {row.device}" for row in rows.itertuples())
    return (HOLDS if (rows.cv < limit).all() else DOES_NOT), f"coefficients of variation: {told}"


def after_discarding(evidence: Evidence, discarded: Iterable[int], right: Callable[[pd.Series], bool]) -> Judgement:
    """Judges the mean of ten steps after some discarded ones, in fp32, eager, by how far it is above steady."""
    rows = evidence["warm_up"]
    rows = rows[(rows.execution == "eager") & (rows.precision == "fp32")] if len(rows) else rows
    rows = rows[rows.n_discarded.isin(list(discarded))] if len(rows) else rows
    if rows.empty:
        return CANNOT, "no cell has enough steps"
    off = rows.mean_ratio - 1
    named = " or ".join(map(str, discarded))
    told = f"after {named} discarded steps the mean of ten is off by {extent(map(percent, sorted(off)))}"
    return (HOLDS if right(off) else DOES_NOT), f"{told}, in {plural(rows.cell.nunique(), 'cell')}"


def speed_within(rows: pd.DataFrame, low: float, high: float, otherwise: str) -> Judgement:
    """Judges `speedup` of rows, with its interval `low` to `high` if they have one: wrong where it lies outside."""
    if rows.empty:
        return CANNOT, otherwise
    lows, highs = (rows[name].fillna(rows.speedup) if name in rows else rows.speedup for name in ("low", "high"))
    outside = (highs < low) | (lows > high)
    said = listing(
        f"{extent(map(times, sorted(group.speedup)))} in {precision} on {device}"
        for (device, precision), group in rows.groupby(["device", "precision"], sort=False)
    )
    return (DOES_NOT if outside.any() else HOLDS), f"{said}; {int(outside.sum()):,} of {len(rows):,} outside"


def extent(texts: Iterable[str]) -> str:
    """The first and the last of ordered values in words: 2.5 GiB to 3.1 GiB, or one of them if they read the same."""
    texts = list(texts)
    return " to ".join(dict.fromkeys((texts[0], texts[-1])))
