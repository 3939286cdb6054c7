"""Draws what the first step of a process costs against a warm one.

Inputs: cells.csv, findings.json. Outputs: the figure (SVG) and what it draws (CSV): device, cell, model, execution,
step_time_s (warm median), first_step_s, extra_s (first step minus warm median), n_cold, record, barred.
"""

from pathlib import Path

import numpy as np

from workflow_scripts.lib import barred, csv_tables, facets, plotting
from workflow_scripts.lib.quantities import plural, quantity

COLUMNS = "device cell model execution step_time_s first_step_s extra_s n_cold record barred".split()


def main(*, cells: Path, findings: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the measured cells whose first step was timed."""
    table = csv_tables.with_columns(csv_tables.read(cells), COLUMNS)
    timed = facets.timed_steps(table) if "status" in table else table
    rows = barred.mark(timed[timed.first_step_s.notna()].copy(), "cell", findings)
    if rows.empty:
        reason = facets.why_none(table) if timed.empty else "no cell has a first step that was timed."
        plotting.save_nothing(figure, reason)
        csv_tables.write(rows.assign(extra_s=None)[COLUMNS], data)
        return
    rows["extra_s"] = rows.first_step_s - rows.step_time_s
    panels = facets.split(rows, ["device"])
    styles = plotting.series_styles(rows.execution.unique())
    both = np.concatenate([rows.step_time_s, rows.first_step_s])
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=2.9)
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(title)
            reach = np.array([rows.step_time_s.min() / 1.2, rows.step_time_s.max() * 1.2])
            axis.plot(
                reach,
                reach,
                color=plotting.INK,
                linewidth=0.9,
                linestyle=(0, (4, 2)),
                label="no dearer than a warm step",
            )
            for execution, points in frame.groupby("execution", sort=True):
                x, y, name = points.step_time_s, points.first_step_s, plotting.short(execution)
                plotting.points(axis, x, y, points.barred, **styles[execution], linestyle="", label=name)
            plotting.log_axis(axis.xaxis, rows.step_time_s)
            plotting.log_axis(axis.yaxis, both)
            axis.set_ylim(both.min() / 1.4, both.max() * 1.4)
        plotting.label_axes(canvas, "warm step time, median (s)", "first step (s)")
        plotting.legend(canvas, axes)
        caption = (
            f"The first step of a process against a warm one. In the middle it costs "
            f"{quantity(float(rows.extra_s.median()), 's')} more, and it takes "
            f"{plural(round(rows.n_cold.median()), 'step')} until times are steady; none of these steps is in any step "
            f"time.{barred.told(rows)}{panels.left_out}"
        )
        alt = f"Points of first-step time over warm step time for {len(rows)} cells."
        plotting.save(canvas, figure, caption=caption, alt=alt)
    csv_tables.write(panels.drawn[COLUMNS], data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
