"""Draws loss over time and over memory for all treatments of each device, with those that nothing beats.

Inputs: pareto.csv. Outputs: the figure (SVG) and what it draws (CSV): rows of pareto.csv.
"""

from pathlib import Path

from workflow_scripts.lib import csv_tables, facets, plotting
from workflow_scripts.lib.quantities import unit_for

STYLES = {
    "front": {"color": plotting.SERIES[2], "marker": "o"},
    "undecided": {"color": plotting.SERIES[4], "marker": "o", "markerfacecolor": "none"},
    "beaten": {"color": plotting.FAINT, "marker": "x"},
}
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
            _name_front(axis, frame, x, scale, several)
            plotting.log_axis(axis.xaxis, frame[x] / scale)
            plotting.log_axis(axis.yaxis, frame.final_val_loss)
        plotting.label_axes(canvas, "", "validation loss at its own end (nats per token)")
        plotting.legend(canvas, axes)
        caption = (
            "Nearer the lower left is better. Green treatments are on the front over time, memory and loss: each other "
            "one is surely behind them in something. Crosses are beaten: another is better in one of the three and no "
            "worse in any. Open circles are undecided. Bars reach from the least to the most over seeds."
            f"{split.left_out}"
        )
        front = [plotting.short(row.treatment) for row in rows.itertuples() if row.front == "front"]
        plotting.save(canvas, figure, caption=caption, alt=f"On the front: {', '.join(front) or 'none for sure'}.")
    csv_tables.write(split.drawn, data)


def _name_front(axis: object, frame: object, x: str, scale: float, several: bool) -> None:
    """Writes the names of the front beside its points, from the lowest loss up, at least a line apart."""
    best = frame[frame.front == "front"].sort_values("final_val_loss")
    for place, row in enumerate(best.itertuples()):
        label = f"{row.name} {row.treatment}" if several else row.treatment
        axis.annotate(
            plotting.short(label, 30), (getattr(row, x) / scale, row.final_val_loss),
            xytext=(6, 5 if place % 2 else -9), textcoords="offset points", fontsize=7, color=plotting.INK,
        )  # fmt: skip


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
