"""Draws how alike the two selected models are: the ratio of each quantity, deep over wide.

Inputs: selection.json, or none where the study names its models. Outputs: the figure (SVG) and what it draws (CSV):
quantity, ratio (deep / wide), matched (the quantity that the two were matched on), tolerance (of that one).
"""

import json
from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, plotting
from workflow_scripts.lib.claims import QUANTITY_WORDS
from workflow_scripts.lib.comparisons import INTENDED, THRESHOLDS
from workflow_scripts.lib.quantities import listing, percent, times

COLUMNS = ["quantity", "ratio", "matched", "tolerance"]


def main(*, selection: list[Path], figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the ratios of the selection."""
    chosen = json.loads(selection[0].read_text(encoding="utf-8")) if selection else {}
    matched, tolerance = chosen.get("quantity"), chosen.get("tolerance")
    rows = pd.DataFrame(
        [
            (name, value, name == matched, tolerance if name == matched else None)
            for name, value in chosen.get("ratios", {}).items()
            if value
        ],
        columns=COLUMNS,
    )
    csv_tables.write(rows, data)
    if rows.empty:
        plotting.save_nothing(figure, "the study names its models, and selects none.")
        return
    band = THRESHOLDS["listed_ratio"]
    rows["title"] = [QUANTITY_WORDS.get(name, name) for name in rows.quantity]
    rows["far"] = ((rows.ratio - 1).abs() > band) & ~rows.quantity.isin(INTENDED)
    with plotting.style():
        canvas, (axis,) = plotting.panels(1, height=0.35 + 0.33 * len(rows))
        axis.axvspan(1 - band, 1 + band, color=plotting.FAINT, alpha=0.18, linewidth=0)
        axis.axvline(1, color=plotting.INK, linewidth=0.8)
        for y, row in enumerate(rows.itertuples()):
            _draw_ratio(axis, y, row.ratio, "D" if row.matched else "o", plotting.WARN if row.far else plotting.INK)
        low, high = min(rows.ratio.min(), 1 - band), max(rows.ratio.max(), 1 + band)
        plotting.log_axis(axis.xaxis, [low, high])
        axis.set_xlim(low * (low / high) ** 0.2, high * (high / low) ** 0.2)
        axis.set_yticks(range(len(rows)), rows.title + rows.matched.map({True: " (matched)", False: ""}))
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.grid(axis="y", visible=False)
        plotting.label_axes(canvas, "deep ÷ wide")
        unlike = listing(f"{row.title} ({times(row.ratio)})" for row in rows[rows.far].itertuples())
        outside = f"outside it, unasked for, lie {unlike}" if unlike else "nothing unasked for lies outside it"
        caption = "What `deep` has of each quantity for one of `wide`. "
        caption += f"The band is {percent(band)} to either side; {outside}."
        alt = "Ratios deep over wide: " + ", ".join(f"{row.title} {times(row.ratio)}" for row in rows.itertuples())
        plotting.save(canvas, figure, caption=caption, alt=alt)


def _draw_ratio(axis: plotting.Axes, y: int, ratio: float, marker: str, colour: str) -> None:
    axis.hlines(y, min(1, ratio), max(1, ratio), color=colour, linewidth=1.5)
    axis.plot(ratio, y, marker=marker, color=colour, markersize=6)
    side = 1 if ratio >= 1 else -1
    place = {
        "xytext": (8 * side, 0),
        "textcoords": "offset points",
        "va": "center",
        "ha": "left" if side > 0 else "right",
    }
    axis.annotate(times(ratio), (ratio, y), color=plotting.INK, **place)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
