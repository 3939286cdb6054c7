"""Draws validation loss over learning rates for each optimizer, at equal tokens and at equal seconds.

Inputs: optimizer_sweep.csv. Outputs: the figure (SVG) and what it draws (CSV): the rows of that table.
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, facets, plotting
from workflow_scripts.lib.optimizer_sweep import COLUMNS
from workflow_scripts.lib.quantities import listing, plural

PLACES = (("val_loss", "equal tokens"), ("val_loss_at_seconds", "equal seconds"))


def main(*, optimizers: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws two panels for each model and device, if optimizers were compared."""
    rows = csv_tables.read(optimizers)
    if rows.empty or rows.val_loss.isna().all():
        csv_tables.write(pd.DataFrame(columns=COLUMNS), data)
        plotting.save_nothing(figure, "the study does not try several optimizers.")
        return
    panels = facets.split(rows, ["device", "name"])
    half = plotting.MAX_PANELS // 2
    shown = list(zip(panels.titles, panels.frames, strict=True))[:half]
    looks = plotting.series_styles(rows.optimizer.unique())
    with plotting.style():
        canvas, axes = plotting.panels(2 * len(shown), columns=2, height=2.6, share="row")
        places = [(title, frame, *place) for title, frame in shown for place in PLACES]
        for axis, (title, frame, column, words) in zip(axes, places, strict=True):
            axis.set_title(f"{title}, {words}" if title else words)
            for name, look in looks.items():
                _draw(axis, frame[frame.optimizer == name], column, look, plotting.short(name))
            plotting.log_axis(axis.xaxis, rows.learning_rate)
            plotting.linear_axis(axis.yaxis)
        plotting.label_axes(canvas, "learning rate", "validation loss (nats per token)")
        plotting.legend(canvas, axes)
        caption = (
            f"Validation loss over the learning rate for {plural(rows.optimizer.nunique(), 'optimizer')}, at equal "
            "tokens and at equal seconds of training; bars reach from the lowest to the highest seed, and a ring marks "
            "the best rate of each by equal tokens."
        )
        alt = f"Loss over learning rate for {listing(plotting.short(name) for name in looks)}."
        plotting.save(canvas, figure, caption=caption, alt=alt)
    csv_tables.write(pd.concat([frame for _, frame in shown])[COLUMNS], data)


def _draw(axis: plotting.Axes, rows: pd.DataFrame, column: str, look: dict, label: str) -> None:
    rows = rows[rows[column].notna()].sort_values("learning_rate")
    axis.plot(rows.learning_rate, rows[column], **look, linewidth=1.1, label=label)
    axis.vlines(rows.learning_rate, rows[f"{column}_low"], rows[f"{column}_high"], color=look["color"], alpha=0.5)
    best = rows[rows.best.astype(str) == "True"]
    axis.plot(best.learning_rate, best[column], linestyle="", marker="o", markersize=10, markerfacecolor="none",
              color=look["color"])  # fmt: skip


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
