"""Draws loss over time and over memory for all treatments of each device, with those that nothing beats.

Inputs: pareto.csv. Outputs: the figure (SVG) and what it draws (CSV): rows of pareto.csv.
"""

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from workflow_scripts.lib import csv_tables, facets, plotting
from workflow_scripts.lib.quantities import unit_for

STYLES = {
    "front": {"color": plotting.SERIES[2], "marker": "o"},
    "undecided": {"color": plotting.SERIES[4], "marker": "o", "markerfacecolor": "none"},
    "beaten": {"color": plotting.FAINT, "marker": "x"},
}
CHARACTER_PT = 3.9  # width of a character of a name, about
PLACES_PT = [(6, 4), (6, -5), (-6, 4), (-6, -5), (6, 13), (6, -14), (-6, 13), (-6, -14)]  # from a point to its name
AXES = {"train_s": ("training time", "s"), "peak_bytes": ("peak memory", "bytes")}


def main(*, pareto: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure, two panels a device."""
    rows = csv_tables.read(pareto)
    if rows.empty:
        csv_tables.write(rows, data)
        plotting.save_nothing(figure, "no treatment has time, memory and loss.")
        return
    split = facets.split(rows, ["device"])
    panels = [(title, frame, axis) for title, frame in zip(split.titles, split.frames, strict=True) for axis in AXES]
    panels = panels[: plotting.MAX_PANELS]
    several = rows["name"].nunique() > 1
    with plotting.style():
        canvas, axes = plotting.panels(len(panels), columns=2, height=3.6, share=False)
        for axis, (title, frame, x) in zip(axes, panels, strict=True):
            named, unit = AXES[x]
            scale, unit = unit_for(frame[x], unit)
            axis.set_title(f"loss over {named}{f' · {title}' if title else ''}")
            axis.set_xlabel(f"{named} ({unit})")
            for front, style in STYLES.items():
                points = frame[frame.front == front]
                axis.hlines(points.final_val_loss, points[f"{x}_low"] / scale, points[f"{x}_high"] / scale,
                            color=style["color"], linewidth=1)  # fmt: skip
                axis.vlines(points[x] / scale, points.final_val_loss_low, points.final_val_loss_high,
                            color=style["color"], linewidth=1)  # fmt: skip
                axis.plot(points[x] / scale, points.final_val_loss, linestyle="", label=front, **style)
            plotting.log_axis(axis.xaxis, frame[x] / scale)
            plotting.log_axis(axis.yaxis, frame.final_val_loss)
            axis.set_ylim(bottom=axis.get_ylim()[0] * 0.92)  # room for names
        plotting.label_axes(canvas, "", "validation loss at its own end (nats per token)")
        plotting.legend(canvas, axes)
        canvas.draw_without_rendering()  # settles where the panels are
        for axis, (_, frame, x) in zip(axes, panels, strict=True):
            _name_front(axis, frame, x, unit_for(frame[x], AXES[x][1])[0], several)
        caption = (
            "Nearer the lower left is better. Green treatments are on the front over time, memory and loss: each other "
            "one is surely behind them in something. Crosses are beaten: another is better in one of the three and no "
            "worse in any. Open circles are undecided. Bars reach from the least to the most over seeds."
            f"{split.left_out}"
        )
        front = [plotting.short(row.treatment) for row in rows.itertuples() if row.front == "front"]
        plotting.save(canvas, figure, caption=caption, alt=f"On the front: {', '.join(front) or 'none for sure'}.")
    csv_tables.write(split.drawn, data)


def _name_front(axis: Axes, frame: pd.DataFrame, x: str, scale: float, several: bool) -> None:
    """Writes names of the front beside its points, the lowest loss first, where they cover neither text nor point."""
    best = frame[frame.front == "front"].sort_values("final_val_loss")
    points = axis.transData.transform(frame[[x, "final_val_loss"]].to_numpy(float) / [scale, 1]) * 72 / axis.figure.dpi
    taken = [(px - 3, py - 3, px + 3, py + 3) for px, py in points]
    left, bottom, right, top = axis.get_window_extent().extents * 72 / axis.figure.dpi
    for row, (px, py) in zip(best.itertuples(), points[frame.index.get_indexer(best.index)], strict=True):
        label = plotting.short(f"{row.name} {row.treatment}" if several else row.treatment, 30)
        width = CHARACTER_PT * len(label)
        for dx, dy in PLACES_PT:
            low = px + dx if dx > 0 else px + dx - width
            box = (low, py + dy - 4, low + width, py + dy + 4)
            inside = left <= box[0] and box[2] <= right and bottom <= box[1] and box[3] <= top
            if inside and not any(_meet(box, other) for other in taken):
                taken.append(box)
                axis.annotate(
                    label, (getattr(row, x) / scale, row.final_val_loss), xytext=(dx, dy), textcoords="offset points",
                    ha="left" if dx > 0 else "right", va="center", fontsize=7, color=plotting.INK,
                )  # fmt: skip
                break


def _meet(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
