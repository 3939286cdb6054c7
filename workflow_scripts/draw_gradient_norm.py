"""Draws the norm of the gradient before clipping over the steps of each training.

Inputs: curves.csv. Outputs: the figure (SVG) and what it draws (CSV): device, treatment, name, seed, step, grad_norm.
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, facets, plotting
from workflow_scripts.lib.quantities import digits

COLUMNS = ["device", "treatment", "name", "seed", "step", "grad_norm"]


def main(*, curves: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the curves of all runs."""
    table = csv_tables.with_columns(csv_tables.read(curves), COLUMNS)
    rows = table[table.grad_norm > 0]
    if rows.empty:
        plotting.save_nothing(figure, "no run has a norm of its gradient.")
        csv_tables.write(pd.DataFrame(columns=COLUMNS), data)
        return
    panels = facets.split(rows, ["device", "treatment"])
    drawn = panels.drawn
    styles = plotting.series_styles(drawn.name.unique())
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=2.5)
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(title)
            lines = list(frame.sort_values("step").groupby(["name", "seed"], sort=True))
            for (name, _), line in sorted(lines, key=lambda item: list(styles).index(item[0][0])):
                axis.plot(line.step, line.grad_norm, color=styles[name]["color"], linewidth=0.8, alpha=0.7,
                          label=plotting.short(name))  # fmt: skip
            plotting.linear_axis(axis.xaxis)
            plotting.log_axis(axis.yaxis, drawn.grad_norm)
        plotting.start_at_zero(axes)
        plotting.label_axes(canvas, "step", "gradient norm")
        plotting.legend(canvas, axes)
        last = drawn[drawn.step > drawn.step.max() / 2].groupby("name").grad_norm.median()
        ends = ", ".join(f"{digits(value)} for `{plotting.short(name)}`" for name, value in last.items())
        caption = (
            f"Norm of the gradient before clipping, a line for each seed. Over the second half its median is {ends}."
        )
        alt = f"Gradient norm over steps for {', '.join(plotting.short(name) for name in styles)}."
        plotting.save(canvas, figure, caption=caption + panels.left_out, alt=alt)
    csv_tables.write(drawn[COLUMNS], data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
