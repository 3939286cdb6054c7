"""Draws expected against actual step time with the line of equality, for each way of expecting it.

Inputs: cells.csv, ceilings.csv, findings.json. Outputs: the figure (SVG) and what it draws (CSV): see
`expectations.expectations`, and whether the audit bars the cell.
"""

from pathlib import Path

import numpy as np

from workflow_scripts.lib import barred, csv_tables, facets, plotting
from workflow_scripts.lib.expectations import COLUMNS, WAYS, expectations
from workflow_scripts.lib.quantities import listing, percent


def main(*, cells: Path, ceilings: Path, findings: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the measured cells of which something was expected."""
    table = csv_tables.read(cells)
    rows = barred.mark(expectations(table, csv_tables.read(ceilings)), "cell", findings)
    if rows.empty:
        timed = facets.timed_steps(table)
        reason = facets.why_none(table) if timed.empty else "no measured cell has an expected step time."
        plotting.save_nothing(figure, reason)
        csv_tables.write(rows[[*COLUMNS, "barred"]], data)
        return
    ways = [way for way in WAYS if (rows.way == way).any()]
    rows = rows.assign(place=rows.way.map(ways.index)).sort_values(["device", "place"], kind="stable")
    panels = facets.split(rows, ["device", "place"])
    styles = plotting.series_styles(rows.model.unique())
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=min(len(ways), 3), height=3.0, share=False)
        for axis, frame in zip(axes, panels.frames, strict=True):
            both = np.concatenate([frame.expected_s, frame.step_time_s])
            reach = np.array([both.min() / 1.25, both.max() * 1.25])
            where = f"{plotting.short(frame.device.iloc[0])}\n" if rows.device.nunique() > 1 else ""
            axis.set_title(f"{where}{WAYS[frame.way.iloc[0]]}", fontsize=7.5)
            axis.plot(reach, reach, color=plotting.INK, linewidth=0.9, linestyle=(0, (4, 2)), label="equal")
            for model, points in frame.groupby("model", sort=True):
                x, y = points.expected_s, points.step_time_s
                plotting.points(axis, x, y, points.barred, **styles[model], linestyle="", label=plotting.short(model))
            for way_axis in (axis.xaxis, axis.yaxis):
                plotting.log_axis(way_axis, reach)
        plotting.label_axes(canvas, "expected step time (s)", "actual step time (s)")
        plotting.legend(canvas, axes)
        off = {way: percent(rows[rows.way == way].relative_error.abs().mean()) for way in ways}
        caption = (
            "Expected against actual step time; on the dashed line the two are equal. The mean absolute error is "
            f"{listing(f'{error} by {WAYS[way]}' for way, error in off.items())}."
            f"{' The cost model did not see the cell that it predicts.' if 'model' in off else ''}"
            f"{barred.told(rows)}{panels.left_out}"
        )
        alt = f"Points of actual over expected step time for {rows.cell.nunique()} cells beside the line of equality."
        plotting.save(canvas, figure, caption=caption, alt=alt)
    csv_tables.write(panels.drawn[[*COLUMNS, "barred"]], data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
