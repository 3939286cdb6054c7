"""Draws step time over the steps of each training, relative to the run's median, with its spikes marked.

Inputs: curves.csv, spikes.csv. Outputs: the figure (SVG) and what it draws (CSV): device, name, treatment, seed, step,
step_time_s, relative (step time over the run's median), cause (of a slow step; empty for the others).
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, facets, plotting
from workflow_scripts.lib.quantities import plural, times
from workflow_scripts.lib.spikes import UNEXPLAINED

RUN = ["device", "name", "treatment", "seed"]
COLUMNS = [*RUN, "step", "step_time_s", "relative", "cause"]


def main(*, curves: Path, spikes: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the thinned curves of all runs, and every slow step that the whole histories had."""
    table = csv_tables.with_columns(csv_tables.read(curves), [*RUN, "step", "step_time_s"])
    rows = table[table.step_time_s > 0].copy()
    if rows.empty:
        plotting.save_nothing(figure, "no run has step times.")
        csv_tables.write(pd.DataFrame(columns=COLUMNS), data)
        return
    rows["relative"] = rows.step_time_s / rows.groupby(RUN).step_time_s.transform("median")
    found = csv_tables.with_columns(csv_tables.read(spikes), [*RUN, "step", "step_time_s", "cause"])
    rows = rows.merge(found[[*RUN, "step", "cause"]].astype({"cause": object}), on=[*RUN, "step"], how="left")
    medians = rows.groupby(RUN).step_time_s.median().rename("median").reset_index()
    unseen = found.merge(medians, on=RUN).merge(rows[[*RUN, "step"]], on=[*RUN, "step"], how="left", indicator=True)
    unseen = unseen[unseen["_merge"] == "left_only"]
    unseen = unseen.assign(relative=unseen.step_time_s / unseen["median"])
    rows = pd.concat([rows, unseen[COLUMNS]]) if len(unseen) else rows
    panels = facets.split(rows, ["device", "name", "treatment"])
    drawn = panels.drawn
    # A first step compiles and captures: in scale with it, nothing else of a run could be seen.
    top = drawn.relative[drawn.step > drawn.step.min()].max()
    styles = plotting.series_styles(drawn.name.unique())
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=2.0)
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(title)
            style = styles[frame.name.iloc[0]]
            slow = frame[frame.cause.notna()]
            for _, line in frame.sort_values("step").groupby("seed", sort=True):
                usual = line.relative.where(line.cause.isna())
                axis.plot(line.step, usual, color=style["color"], linewidth=0.6, alpha=0.7)
            for marker, colour, marked in (
                ("x", plotting.WARN, slow[slow.cause == UNEXPLAINED]),
                ("o", plotting.INK, slow[slow.cause != UNEXPLAINED]),
            ):
                if len(marked):  # an empty line that is not clipped upsets the layout
                    look = {"marker": marker, "markersize": 4, "color": colour, "markerfacecolor": "none"}
                    axis.plot(marked.step, marked.relative.clip(upper=top), linestyle="", **look, clip_on=False)
            if (frame.relative > top).any():
                highest = frame.loc[frame.relative.idxmax()]
                place = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "color": plotting.INK}
                axis.annotate(f"up to {times(highest.relative)}", (highest.step, top), **place)
            axis.axhline(1, color=plotting.INK, linewidth=0.7)
            plotting.linear_axis(axis.xaxis)
            plotting.log_axis(axis.yaxis, drawn.relative.clip(upper=top))
        plotting.start_at_zero(axes)
        plotting.label_axes(canvas, "step", "step time ÷ run's median")
        n_slow, n_unexplained = int(drawn.cause.notna().sum()), int((drawn.cause == UNEXPLAINED).sum())
        caption = (
            f"Step time over each training, as a multiple of the run's median, all seeds together. Of "
            f"{plural(n_slow, 'slow event')} drawn, {n_slow - n_unexplained:,} with a logged cause (rings) and "
            f"{n_unexplained:,} unexplained (crosses); the slowest step took {times(drawn.relative.max())} the "
            f"median{'; what is beyond the axis stands at its edge' if drawn.relative.max() > top else ''}."
            f"{panels.left_out}"
        )
        plotting.save(canvas, figure, caption=caption, alt=f"Relative step time over steps in {len(axes)} panels.")
    csv_tables.write(drawn[COLUMNS], data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
