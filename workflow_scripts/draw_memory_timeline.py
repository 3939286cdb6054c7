"""Draws what is allocated over the course of passes, by kind, its peak marked: at each probe's shortest context.

Inputs: memory_timeline.csv. Outputs: the figure (SVG) and what it draws (CSV): the table's rows of those passes; bytes.
"""

from pathlib import Path

from workflow_scripts.lib import csv_tables, facets, plotting
from workflow_scripts.lib.pass_memory_table import KINDS, PASS_KEYS, TIMELINE_COLUMNS, bytes_of
from workflow_scripts.lib.probe_lines import nothing
from workflow_scripts.lib.quantities import quantity, unit_for

COLOURS = [plotting.INK, *plotting.SERIES]
PANELS = ["device", "probe", "mode", "precision", "checkpointing"]


def main(*, memory_timeline: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws a panel for each pass, all on one scale of bytes."""
    rows = csv_tables.read(memory_timeline)
    if rows.empty:
        nothing(figure, data, "no pass was traced.", TIMELINE_COLUMNS)
        return
    rows = rows[rows.sequence_length == rows.groupby(["device", "probe"]).sequence_length.transform("min")]
    panels = facets.split(rows, PANELS)
    scale, unit = unit_for([rows.bytes.max()], "bytes")
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=2.4, share=False)
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(title)
            layers = [frame[bytes_of(kind)] / scale for kind in KINDS]
            stacked = axis.stackplot(frame.place, layers, labels=list(KINDS), colors=COLOURS, alpha=0.75, linewidth=0)
            stacked[0].set_alpha(0.3)
            for place in frame.groupby("phase", sort=False).place.min()[1:]:
                axis.axvline(place, color=plotting.MUTED, linewidth=0.7, linestyle=(0, (3, 3)))
            top = frame[frame.is_peak].iloc[0]
            axis.plot(top.place, top.bytes / scale, marker="v", markersize=6, color=plotting.INK, label="peak")
            axis.set_ylim(0, rows.bytes.max() / scale * 1.06)
            axis.set_xlim(0, frame.place.max())
            plotting.linear_axis(axis.xaxis)
            plotting.linear_axis(axis.yaxis)
        plotting.label_axes(canvas, "allocations and frees, in order", f"allocated ({unit})")
        plotting.legend(canvas, axes)
        peaks = rows[rows.is_peak]
        first = peaks.iloc[0]
        told = "; ".join(
            f"{row.mode.replace('_', ' and ')} in {row.precision} {quantity(row.bytes, 'bytes')}"
            for row in peaks.drop_duplicates(PASS_KEYS).head(6).itertuples()
        )
        caption = (
            f"What tensors hold while `{first.model}` passes over {first.batch_size:,} × {first.sequence_length:,} "
            f"tokens, by kind, from one allocation to the next; broken lines part forward, backward and optimizer. "
            f"Peaks: {told}.{panels.left_out}"
        )
        alt = "Allocated bytes by kind over the course of passes, the peak of each marked."
        plotting.save(canvas, figure, caption=caption, alt=alt)
    csv_tables.write(panels.drawn[TIMELINE_COLUMNS], data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
