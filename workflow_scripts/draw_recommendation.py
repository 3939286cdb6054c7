"""Draws throughput over batch for the recommended model of each device, with the batch that is enough.

Inputs: recommendation.csv and batch_sweep.csv, or none where nothing is recommended. Outputs: the figure (SVG) and what
it draws (CSV): the rows of batch_sweep.csv.
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, facets, plotting
from workflow_scripts.lib.quantities import count, listing, percent
from workflow_scripts.lib.recommendation_table import SWEEP_COLUMNS
from workflow_scripts.lib.ways import WITHIN


def main(*, recommendation: list[Path], sweep: list[Path], figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the batches tried by prediction."""
    rows = csv_tables.read(sweep[0]) if sweep else pd.DataFrame(columns=SWEEP_COLUMNS)
    if rows.empty:
        csv_tables.write(rows, data)
        plotting.save_nothing(figure, "nothing was recommended.")
        return
    checked = csv_tables.read(recommendation[0]).set_index("device")
    panels = facets.split(rows, ["device"])
    blue, orange = plotting.SERIES[:2]
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=2.6, share=False)
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(title)
            x, y = frame.batch_size, frame.throughput_tokens_per_s
            tokens = y * frame.step_time_s
            if frame.low_s.notna().all():
                axis.fill_between(x, tokens / frame.high_s, tokens / frame.low_s, color=blue, alpha=0.15, linewidth=0)
            axis.plot(x, y, color=blue, marker="o", label="predicted")
            barred = ~(frame.fits.astype(bool) & frame.leaves_steps.astype(bool))
            if barred.any():
                axis.plot(x[barred], y[barred], color=plotting.WARN, marker="x", linestyle="", label="too large")
            chosen = frame[frame.chosen.astype(bool)]
            axis.axvline(chosen.batch_size.iloc[0], color=plotting.INK, linewidth=0.9, linestyle=":", label="chosen")
            measured = checked.throughput_tokens_per_s.get(frame.device.iloc[0])
            if pd.notna(measured):
                axis.plot(chosen.batch_size, [measured], color=orange, marker="D", linestyle="", label="measured")
            plotting.log_axis(axis.xaxis, x, base=2)
            axis.set_xticks(sorted(x))
            plotting.log_axis(axis.yaxis, [*y, y.min() / 1.2, y.max() * 1.2])
        plotting.label_axes(canvas, "batch size (sequences per step)", "throughput (tokens/s)")
        plotting.legend(canvas, axes)
        told = [f"{count(row.batch_size)} on {row.device}" for row in rows[rows.chosen.astype(bool)].itertuples()]
        caption = (
            "Predicted throughput of the recommended model over batch size, with its interval. The chosen batch is the "
            f"smallest within {percent(WITHIN)} of the best that fits and leaves enough steps: {listing(told)}."
            f"{panels.left_out}"
        )
        alt = f"Lines of predicted throughput over batch size on {len(panels.frames)} devices."
        plotting.save(canvas, figure, caption=caption, alt=alt)
    csv_tables.write(panels.drawn, data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
