"""Draws expected against actual step time, with the line of equality.

Inputs: cells.csv. Outputs: the figure (SVG) and what it draws (CSV): device, cell, model,
predicted_step_time_s, step_time_s, relative_error (expected over actual, minus one), record.
"""

from pathlib import Path

import numpy as np

from workflow_scripts.lib import csv_tables, facets, plotting
from workflow_scripts.lib.quantities import percent

COLUMNS = ["device", "cell", "model", "predicted_step_time_s", "step_time_s", "relative_error", "record"]


def main(*, cells: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the measured cells that have a prediction."""
    table = csv_tables.with_columns(csv_tables.read(cells), COLUMNS)
    timed = facets.timed_steps(table) if "status" in table else table
    rows = timed[timed.predicted_step_time_s.notna()].copy()
    if rows.empty:
        reason = facets.why_none(table) if timed.empty else "no measured cell has a predicted step time."
        plotting.save_nothing(figure, reason)
        csv_tables.write(rows[COLUMNS], data)
        return
    rows["relative_error"] = rows.predicted_step_time_s / rows.step_time_s - 1
    panels = facets.split(rows, ["device"])
    styles = plotting.series_styles(rows.model.unique())
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=3.3, share=False)
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(title)
            both = np.concatenate([frame.predicted_step_time_s, frame.step_time_s])
            reach = np.array([both.min() / 1.25, both.max() * 1.25])
            error = float(frame.relative_error.abs().mean())
            axis.fill_between(
                reach, reach / (1 + error), reach * (1 + error), color=plotting.FAINT, alpha=0.25, linewidth=0
            )
            axis.plot(reach, reach, color=plotting.INK, linewidth=0.9, linestyle=(0, (4, 2)), label="equal")
            for model in styles:
                points = frame[frame.model == model]
                axis.plot(
                    points.predicted_step_time_s,
                    points.step_time_s,
                    **styles[model],
                    linestyle="",
                    label=plotting.short(model),
                )
            plotting.log_axis(axis.xaxis, both)
            plotting.log_axis(axis.yaxis, both)
        plotting.label_axes(canvas, "expected step time (s)", "actual step time (s)")
        plotting.legend(canvas, axes)
        worst = rows.loc[rows.relative_error.abs().idxmax()]
        caption = (
            "Expected against actual step time; each cell was predicted by a cost model fitted without it. On the "
            "dashed line the two are equal, and the band is as wide as the mean absolute error, "
            f"{percent(rows.relative_error.abs().mean())} over all; the largest is "
            f"{percent(abs(worst.relative_error))} ({worst.cell}, {worst.device}).{panels.left_out}"
        )
        alt = f"Points of actual over expected step time for {len(rows)} cells beside the line of equality."
        plotting.save(canvas, figure, caption=caption, alt=alt)
    csv_tables.write(panels.drawn[COLUMNS], data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
