"""Draws where the time of a step goes: the share of each operator, for each profiled model.

Inputs: operators.csv. Outputs: the figure (SVG) and what it draws (CSV): device, name, operator, share (of the
wall time of the profiled steps), self_time_s (per step); operators beyond the largest are summed up as "all others".
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, facets, plotting
from workflow_scripts.lib.quantities import percent

COLUMNS = ["device", "name", "operator", "share", "self_time_s"]
N_OPERATORS = 10
OTHERS = "all others"


def main(*, operators: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the operators of all profiles."""
    table = csv_tables.with_columns(csv_tables.read(operators), COLUMNS)
    table = table[table.share.notna()]
    if table.empty:
        plotting.save_nothing(figure, "no profile was taken.")
        csv_tables.write(pd.DataFrame(columns=COLUMNS), data)
        return
    totals = table.groupby(["device", "name", "operator"])["share"].sum().groupby("operator").max()
    largest = sorted(totals.index, key=lambda operator: (-totals[operator], operator))[:N_OPERATORS]
    named = table.assign(operator=table.operator.where(table.operator.isin(largest), OTHERS))
    rows = named.groupby(["device", "name", "operator"], as_index=False)[["share", "self_time_s"]].sum()
    order = [*largest, OTHERS] if OTHERS in set(rows.operator) else largest
    panels = facets.split(rows, ["device"])
    styles = plotting.series_styles(rows.name.unique())
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=0.5 + 0.24 * len(order))
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(title)
            wide = frame.pivot(index="operator", columns="name", values="share").reindex(order)
            axis.hlines(
                range(len(order)),
                wide.min(axis=1) * 100,
                wide.max(axis=1) * 100,
                color=plotting.FAINT,
                linewidth=2,
                alpha=0.6,
            )
            for name in (name for name in styles if name in wide):
                axis.plot(wide[name] * 100, range(len(order)), **styles[name], linestyle="", label=plotting.short(name))
            axis.set_yticks(range(len(order)), [plotting.short(operator, 40) for operator in order])
            axis.set_ylim(len(order) - 0.4, -0.6)
            plotting.linear_axis(axis.xaxis)
        plotting.start_at_zero(axes)
        plotting.label_axes(canvas, "share of a step's time (%)")
        plotting.legend(canvas, axes)
        first = rows.loc[rows.share.idxmax()]
        caption = (
            f"Where the time of a step goes, operator by operator. The largest share is "
            f"{percent(first.share)}: {plotting.short(first.operator, 60)} for `{first['name']}` on {first.device}."
            f"{panels.left_out}"
        )
        alt = (
            "Shares of a step's time: "
            + ", ".join(f"{plotting.short(o, 40)} up to {percent(totals[o])}" for o in largest)
            + "."
        )
        plotting.save(canvas, figure, caption=caption, alt=alt)
    csv_tables.write(rows[COLUMNS], data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
