"""Loss over tokens or over time: training loss as thin lines, validation loss as points with a band over the seeds."""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, facets, plotting
from workflow_scripts.lib.quantities import plural

COLUMNS = ["device", "treatment", "name", "seed", "step", "tokens", "elapsed_s", "loss", "val_loss"]
_MAX_POINTS = 250  # of a training curve; more cannot be told apart at the width of a panel


def draw(curves: pd.DataFrame, x: str, *, label: str, unit: float, what: str, figure: Path, data: Path) -> None:
    """Draws loss over the column `x`, divided by `unit`, and writes the rows that it drew.

    Args:
        curves: rows of curves.csv.
        x: `tokens` or `elapsed_s`.
        label: the x axis with its unit.
        unit: what `x` is divided by.
        what: `tokens` or `time`, for the sentence.
        figure: SVG to write.
        data: CSV to write.
    """
    curves = curves[curves.loss.notna() | curves.val_loss.notna()] if len(curves) else curves
    if curves.empty:
        plotting.save_nothing(figure, "no run has a loss.")
        csv_tables.write(pd.DataFrame(columns=COLUMNS), data)
        return
    panels = facets.split(curves, ["device", "treatment"])
    thinned = [_thinned(frame) for frame in panels.frames]
    styles = plotting.series_styles(panels.drawn.name.unique())
    shared = x == "tokens"
    with plotting.style():
        canvas, axes = plotting.panels(len(thinned), columns=2, height=3.0, share=shared)
        for axis, title, frame in zip(axes, panels.titles, thinned, strict=True):
            axis.set_title(title)
            for name in styles:
                lines = frame[frame.name == name]
                _draw_model(axis, lines, x, unit, plotting.short(name), styles[name])
            seen = panels.drawn if shared else frame
            if seen.val_loss.notna().any():
                axis.set_ylim(seen[["loss", "val_loss"]].min().min() * 0.97, seen.val_loss.max() * 1.06)
            plotting.linear_axis(axis.xaxis)
            plotting.linear_axis(axis.yaxis)
        plotting.start_at_zero(axes)
        plotting.label_axes(canvas, label, "loss (nats per token)")
        plotting.legend(canvas, axes)
        n_seeds = int(curves.groupby(["device", "name", "treatment"]).seed.nunique().max())
        caption = (
            f"Loss over {what}, from the height of the first evaluation down: points are validation loss, the mean of "
            f"{plural(n_seeds, 'seed')}, and bands reach from the lowest to the highest seed; thin lines are the "
            f"training loss of each seed.{panels.left_out}"
        )
        alt = f"Curves of loss over {what} for {', '.join(plotting.short(name) for name in styles)}."
        plotting.save(canvas, figure, caption=caption, alt=alt)
    csv_tables.write(pd.concat(thinned)[COLUMNS], data)


def _thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """Keeps every evaluation and at most `_MAX_POINTS` other rows of each run."""
    kept = []
    for _, line in frame.groupby(["name", "seed"], sort=True):
        line = line.sort_values("step")
        stride = -(-len(line) // _MAX_POINTS)
        kept.append(line[(pd.RangeIndex(len(line)) % stride == 0) | line.val_loss.notna()])
    return pd.concat(kept)


def _draw_model(axis: object, lines: pd.DataFrame, x: str, unit: float, label: str, style: dict) -> None:
    for _, line in lines.groupby("seed", sort=True):
        axis.plot(line[x] / unit, line.loss, color=style["color"], linewidth=0.6, alpha=0.45)
    evaluated = lines[lines.val_loss.notna()]
    if evaluated.empty:
        axis.plot([], [], color=style["color"], label=label)
        return
    steps = evaluated.groupby("step", sort=True)
    position, loss = steps[x].mean() / unit, steps.val_loss
    axis.fill_between(position, loss.min(), loss.max(), color=style["color"], alpha=0.22, linewidth=0)
    axis.plot(position, loss.mean(), **style, markersize=3.6, linewidth=1.2, label=label)
