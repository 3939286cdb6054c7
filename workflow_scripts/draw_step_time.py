"""Draws step time against model FLOPs per step, with lines of equal FLOP/s.

Inputs: cells.csv, findings.json. Outputs: the figure (SVG) and what it draws (CSV): device, cell, model, batch_size,
sequence_length, precision, execution, flops_per_step, step_time_s with its low and high ends, achieved_flop_per_s,
record, barred.
"""

from pathlib import Path

import numpy as np

from workflow_scripts.lib import barred, csv_tables, facets, plotting
from workflow_scripts.lib.quantities import percent, quantity

COLUMNS = [
    "device", "cell", "model", "batch_size", "sequence_length", "precision", "execution", "flops_per_step",
    "step_time_s", "step_time_low_s", "step_time_high_s", "achieved_flop_per_s", "record", "barred",
]  # fmt: skip


def main(*, cells: Path, findings: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the measured cells."""
    table = csv_tables.read(cells)
    rows = barred.mark(facets.timed_steps(table), "cell", findings)
    if rows.empty:
        plotting.save_nothing(figure, facets.why_none(table))
        csv_tables.write(csv_tables.with_columns(rows, COLUMNS)[COLUMNS], data)
        return
    rows["flops_per_step"] = rows.flops_per_token * rows.tokens_per_step
    panels = facets.split(rows, ["device"])
    styles = plotting.series_styles(rows.model.unique())
    rates = rows.achieved_flop_per_s
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=3.3)
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(title)
            best = float(frame.achieved_flop_per_s.max())
            reach = np.array([rows.flops_per_step.min() / 1.5, rows.flops_per_step.max() * 1.5])
            axis.plot(reach, reach / best, color=plotting.INK, linewidth=0.9, linestyle=(0, (4, 2)),
                      label="at the highest FLOP/s reached")  # fmt: skip
            for model in styles:
                points = frame[frame.model == model]
                x, y = points.flops_per_step, points.step_time_s
                plotting.points(axis, x, y, points.barred, **styles[model], linestyle="", label=plotting.short(model))
            plotting.log_axis(axis.xaxis, rows.flops_per_step)
            plotting.log_axis(axis.yaxis, rows.step_time_s)
            axis.set_ylim(rows.step_time_s.min() / 1.4, rows.step_time_s.max() * 1.4)
        plotting.label_axes(canvas, "model FLOPs per step", "step time (s)")
        plotting.legend(canvas, axes)
        lowest = (frame.achieved_flop_per_s.min() / frame.achieved_flop_per_s.max() for frame in panels.frames)
        caption = (
            f"Step time against the model FLOPs of a step. On the dashed line a device keeps the highest rate that it "
            f"reached; the further above it, the more of the step is something else. Rates lie between "
            f"{quantity(rates.min(), 'FLOP/s')} and {quantity(rates.max(), 'FLOP/s')}, and the lowest on a device is "
            f"{percent(min(lowest))} of its highest.{barred.told(rows)}{panels.left_out}"
        )
        alt = (
            f"Points of step time over FLOPs per step for {len(rows)} cells, with a line of equal rate for each device."
        )
        plotting.save(canvas, figure, caption=caption, alt=alt)
    csv_tables.write(panels.drawn[COLUMNS], data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
