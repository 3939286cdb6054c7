"""Draws how alike the two selected models are: the ratio of each quantity, deep over wide.

Inputs: selection.json. Outputs: the figure (SVG) and what it draws (CSV): quantity, ratio (deep / wide), matched (the
quantity that the two were matched on), tolerance (of that one).
"""

import json
from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, plotting
from workflow_scripts.lib.claims import QUANTITY_WORDS
from workflow_scripts.lib.comparisons import THRESHOLDS
from workflow_scripts.lib.quantities import listing, percent, times

COLUMNS = ["quantity", "ratio", "matched", "tolerance"]


def main(*, selection: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the ratios of the selection."""
    chosen = json.loads(selection.read_text())
    ratios = {name: value for name, value in chosen.get("ratios", {}).items() if value}
    matched, tolerance = chosen.get("quantity"), chosen.get("tolerance")
    rows = pd.DataFrame(
        [(name, value, name == matched, tolerance if name == matched else None) for name, value in ratios.items()],
        columns=COLUMNS,
    )
    csv_tables.write(rows, data)
    if rows.empty:
        plotting.save_nothing(figure, "the study names its models, and selects none.")
        return
    names = [QUANTITY_WORDS.get(name, name) for name in rows.quantity]
    far = [abs(value - 1) > THRESHOLDS["listed_ratio"] for value in rows.ratio]
    with plotting.style():
        canvas, (axis,) = plotting.panels(1, height=0.35 + 0.33 * len(rows))
        axis.axvspan(
            1 - THRESHOLDS["listed_ratio"],
            1 + THRESHOLDS["listed_ratio"],
            color=plotting.FAINT,
            alpha=0.18,
            linewidth=0,
        )
        axis.axvline(1, color=plotting.INK, linewidth=0.8)
        for y, (row, is_far) in enumerate(zip(rows.itertuples(), far, strict=True)):
            colour = plotting.WARN if is_far else plotting.INK
            axis.hlines(y, 1, row.ratio, color=colour, linewidth=1.5)
            axis.plot(row.ratio, y, marker="D" if row.matched else "o", color=colour, markersize=6)
            side = 8 if row.ratio >= 1 else -8
            axis.annotate(times(row.ratio), (row.ratio, y), xytext=(side, 0), textcoords="offset points", va="center",
                          ha="left" if side > 0 else "right", color=plotting.INK)  # fmt: skip
        low, high = min(rows.ratio.min(), 0.9), max(rows.ratio.max(), 1.1)
        axis.set_xlim(low - 0.25 * (high - low), high + 0.25 * (high - low))
        axis.set_yticks(
            range(len(rows)), [f"{n} (matched)" if m else n for n, m in zip(names, rows.matched, strict=True)]
        )
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.grid(axis="y", visible=False)
        axis.set_xlabel("deep ÷ wide")
        plotting.linear_axis(axis.xaxis)
        unlike = [
            f"{name} ({times(value)})" for name, value, is_far in zip(names, rows.ratio, far, strict=True) if is_far
        ]
        caption = f"What `deep` has of each quantity for one of `wide`. The band reaches {percent(THRESHOLDS['listed_ratio'])} "
        caption += (
            f"to either side; outside it: {listing(unlike)}."
            if unlike
            else "to either side, and nothing lies outside it."
        )
        alt = (
            "Ratios deep over wide: "
            + ", ".join(f"{n} {times(v)}" for n, v in zip(names, rows.ratio, strict=True))
            + "."
        )
        plotting.save(canvas, figure, caption=caption, alt=alt)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
