"""Draws step time over the steps of each training, relative to the run's median, with its spikes marked.

Inputs: curves.csv. Outputs: the figure (SVG) and what it draws (CSV): device, name, treatment, seed, step, step_time_s,
relative (step time over the run's median), spike.
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, facets, plotting
from workflow_scripts.lib.comparisons import THRESHOLDS
from workflow_scripts.lib.quantities import percent, plural, times

RUN = ["device", "name", "treatment", "seed"]
COLUMNS = [*RUN, "step", "step_time_s", "relative", "spike"]


def main(*, curves: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the curves of all runs, as far as their thinned tables hold the steps."""
    table = csv_tables.with_columns(csv_tables.read(curves), [*RUN, "step", "step_time_s"])
    rows = table[table.step_time_s > 0].copy()
    if rows.empty:
        plotting.save_nothing(figure, "no run has step times.")
        csv_tables.write(pd.DataFrame(columns=COLUMNS), data)
        return
    rows["relative"] = rows.step_time_s / rows.groupby(RUN).step_time_s.transform("median")
    rows["spike"] = rows.relative > THRESHOLDS["spike"]
    panels = facets.split(rows, ["device", "name", "treatment"])
    drawn = panels.drawn
    styles = plotting.series_styles(drawn.name.unique())
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=2.0)
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(title)
            style = styles[frame.name.iloc[0]]
            spikes = frame[frame.spike]
            for _, line in frame.sort_values("step").groupby("seed", sort=True):
                axis.plot(line.step, line.relative.where(~line.spike), color=style["color"], linewidth=0.6, alpha=0.7)
            axis.plot(
                spikes.step, spikes.relative, linestyle="", marker="x", markersize=4, color=plotting.WARN, clip_on=False
            )
            axis.axhline(1, color=plotting.INK, linewidth=0.7)
            plotting.linear_axis(axis.xaxis)
            plotting.log_axis(axis.yaxis, drawn.relative)
            axis.set_xlim(left=0)
        plotting.label_axes(canvas, "step", "step time ÷ run's median")
        n_spikes = int(drawn.spike.sum())
        caption = (
            f"Step time over each training, as a multiple of the run's median, all seeds together. Of "
            f"{plural(len(drawn), 'step')} drawn, {n_spikes:,} ({percent(n_spikes / len(drawn))}) took more than "
            f"{times(THRESHOLDS['spike'])} the median and are crossed; the slowest took {times(drawn.relative.max())}. "
            f"Causes that were not logged are unexplained.{panels.left_out}"
        )
        plotting.save(canvas, figure, caption=caption, alt=f"Relative step time over steps in {len(axes)} panels.")
    csv_tables.write(drawn[COLUMNS], data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
