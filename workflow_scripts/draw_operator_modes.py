"""Draws where the time of forward, forward and backward, and the whole step goes, by kind of work.

Inputs: operator_probes.csv. Outputs: the figure (SVG) and what it draws (CSV): device, probe, mode, category, share (of
the wall time, idle time included), time_s (per pass).
"""

from pathlib import Path

from workflow_scripts.lib import csv_tables, facets, plotting, probe_lines
from workflow_scripts.lib.quantities import percent

COLUMNS = ["device", "probe", "mode", "category", "share", "time_s"]
MODES = ("forward", "forward_backward", "optimizer", "step")


def main(*, operator_probes: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the operators of every mode."""
    table = csv_tables.read(operator_probes)
    table = table[(table.status == "ok") & table.share.notna()] if len(table) else table
    if table.empty:
        probe_lines.nothing(figure, data, "no pass was watched by the profiler.", COLUMNS)
        return
    keys = ["device", "probe", "mode", "category"]
    rows = table.groupby(keys, as_index=False)[["share", "self_time_s"]].sum().rename(columns={"self_time_s": "time_s"})
    order = list(rows.groupby("category")["share"].max().sort_values(ascending=False).index)
    panels = facets.split(rows, ["device", "probe"])
    styles = plotting.series_styles(sorted(rows["mode"].unique(), key=MODES.index))
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=0.5 + 0.26 * len(order))
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(title)
            for mode in styles:
                part = frame[frame["mode"] == mode].set_index("category")["share"].reindex(order)
                axis.plot(part * 100, range(len(order)), **styles[mode], linestyle="", label=mode.replace("_", " and "))
            axis.set_yticks(range(len(order)), order)
            axis.set_ylim(len(order) - 0.4, -0.6)
            axis.set_xlim(0, rows.share.max() * 105)
            plotting.linear_axis(axis.xaxis)
        plotting.label_axes(canvas, "share of the time of a pass (%)")
        plotting.legend(canvas, axes)
        busy = rows[~rows.category.str.startswith("idle")]
        first = busy.loc[busy.share.idxmax()]
        caption = (
            f"Where the time of each pass goes, by kind of work, idle time among it; the shares of a pass sum to "
            f"100 %. The largest is {first.category}, {percent(first.share)} of {first['mode'].replace('_', ' and ')} "
            f"(`{first.probe}` on {first.device}).{panels.left_out}"
        )
        alt = "Shares of kinds of work in the time of each pass."
        plotting.save(canvas, figure, caption=caption, alt=alt)
    csv_tables.write(panels.drawn[COLUMNS], data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
