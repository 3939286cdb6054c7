"""Draws the kinds of work of each pass below the roofline of its device and precision.

Inputs: operator_probes.csv, ceilings.csv. Outputs: the figure (SVG) and what it draws (CSV): device, probe, precision,
mode, category, flop_per_byte, flop_per_s, bytes_per_s, of_roof, share (of the time of the pass).
"""

from pathlib import Path

import numpy as np

from workflow_scripts.lib import csv_tables, facets, plotting, probe_lines
from workflow_scripts.lib.attention_table import best_of
from workflow_scripts.lib.operator_roofline import PASS, kinds
from workflow_scripts.lib.quantities import percent

COLUMNS = [*PASS, "category", "flop_per_byte", "flop_per_s", "bytes_per_s", "of_roof", "share"]
MODES = ("step", "forward_backward", "forward")


def main(*, operator_probes: Path, ceilings: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the largest pass of each probe: kinds of work whose FLOPs and bytes are known."""
    best = csv_tables.read(ceilings)
    rows = kinds(csv_tables.read(operator_probes), best)
    rows = rows[(rows.flop_per_byte > 0) & rows.of_roof.notna()]
    if rows.empty:
        probe_lines.nothing(figure, data, "no pass has kinds of work whose FLOPs and bytes are known.", COLUMNS)
        return
    largest = rows["mode"].map(MODES.index)
    rows = rows[largest == largest.groupby([rows.device, rows.probe]).transform("min")]
    panels = facets.split(rows, ["device", "probe", "precision"])
    styles = plotting.series_styles(list(rows.category.unique()))
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=2.8, share=False)
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            flop_per_s, bytes_per_s = best_of(best, frame.device.iloc[0], frame.precision.iloc[0])
            reach = np.array(
                [frame.flop_per_byte.min() / 2, max(frame.flop_per_byte.max(), flop_per_s / bytes_per_s) * 2]
            )
            edge = np.array([reach[0], flop_per_s / bytes_per_s, reach[1]])
            roof = np.minimum(edge * bytes_per_s, flop_per_s)
            axis.set_title(title)
            axis.plot(edge, roof, color=plotting.INK, linewidth=1.1, label="measured ceilings")
            for row in frame.itertuples():
                style = styles[row.category]
                axis.plot(row.flop_per_byte, row.flop_per_s, **style, linestyle="", label=row.category)
            plotting.log_axis(axis.xaxis, reach)
            plotting.log_axis(axis.yaxis, [*frame.flop_per_s, *roof])
        plotting.label_axes(canvas, "FLOPs for each byte that is moved at least", "FLOP/s")
        plotting.legend(canvas, axes)
        first = rows.loc[rows.share.idxmax()]
        caption = (
            f"Kinds of work below the measured rates of copies (rising) and products (level), at the bytes of inputs "
            f"read and outputs written once. The largest, {first.category} of `{first.probe}` on {first.device}, "
            f"reaches {percent(first.of_roof)} of what they allow there.{panels.left_out}"
        )
        alt = f"FLOP/s over FLOPs per byte for {len(rows)} kinds of work."
        plotting.save(canvas, figure, caption=caption, alt=alt)
    csv_tables.write(panels.drawn[COLUMNS], data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
