"""Draws how many times as fast each precision and execution is as fp32, eager, over the size of the model.

Inputs: speedups.csv. Outputs: the figure (SVG) and what it draws (CSV): rows of speedups.csv, and `way`, its line.
"""

from pathlib import Path

import numpy as np

from workflow_scripts.lib import csv_tables, facets, plotting, probe_lines
from workflow_scripts.lib.quantities import times
from workflow_scripts.lib.sizes_table import SPEEDUP_COLUMNS, of_sizes

APART = 0.025  # of a decade: how far ways at one model are set apart, so that intervals do not cover each other


def main(*, speedups: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from whole steps at one batch and context."""
    table = csv_tables.read(speedups)
    rows = of_sizes(table[table["mode"] == "step"] if len(table) else table, least=1)
    columns = [*SPEEDUP_COLUMNS, "way"]
    if rows.empty:
        probe_lines.nothing(figure, data, "no model has a step to compare with fp32, eager.", columns)
        return
    drawn = rows.assign(way=rows.precision.str.cat(rows.execution, sep=", "))
    panels = facets.split(drawn, ["device"])
    styles = plotting.series_styles(list(drawn.way.unique()))
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=3.0)
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(title)
            axis.axhline(1, color=plotting.INK, linewidth=0.8)
            for place, (way, line) in enumerate(frame.groupby("way", sort=True)):
                line = line.sort_values("n_params", kind="stable")
                x = line.n_params * 10 ** (APART * (place - (len(styles) - 1) / 2))
                known = line.low.notna()
                axis.vlines(x[known], line.low[known], line.high[known], color=styles[way]["color"], linewidth=1.3)
                axis.plot(x, line.speedup, **styles[way], linewidth=0.9, label=plotting.short(way))
            plotting.log_axis(axis.xaxis, drawn.n_params)
            plotting.log_axis(axis.yaxis, np.r_[drawn.speedup, drawn.low.dropna(), drawn.high.dropna(), 1.0])
        plotting.label_axes(canvas, "parameters", "times as fast as fp32, eager")
        plotting.legend(canvas, axes)
        best = drawn.loc[drawn.speedup.idxmax()]
        caption = (
            f"A whole step beside that of fp32, eager, at the same batch and context; bars are 95 % intervals, and "
            f"below the line it is slower. Most gains `{best.model}` in {best.way}: {times(best.speedup)}."
            f"{panels.left_out}"
        )
        alt = f"Speed-ups over parameters for {', '.join(styles)}."
        plotting.save(canvas, figure, caption=caption, alt=alt)
    csv_tables.write(panels.drawn[columns], data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
