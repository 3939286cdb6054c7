"""Draws throughput over batch size, a panel for each device and context length.

Inputs: cells.csv, findings.json. Outputs: the figure (SVG) and what it draws (CSV): device, sequence_length, model,
n_layer, n_embd, precision, execution, batch_size, cell, record, barred, throughput_tokens_per_s with its low and high
ends.
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import barred, cell_lines, csv_tables, facets, plotting
from workflow_scripts.lib.comparisons import THRESHOLDS
from workflow_scripts.lib.quantities import percent, plural, quantity

VALUE = "throughput_tokens_per_s"


def main(*, cells: Path, findings: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the measured cells."""
    table = csv_tables.read(cells)
    rows = barred.mark(facets.timed_steps(table), "cell", findings)
    if rows.empty:
        plotting.save_nothing(figure, facets.why_none(table))
        csv_tables.write(pd.DataFrame(columns=["device", "sequence_length", "model", "batch_size", VALUE]), data)
        return
    least, most = rows.loc[rows[VALUE].idxmin()], rows.loc[rows[VALUE].idxmax()]
    caption = (
        f"Throughput over batch size. {plural(len(rows), 'cell')} reach from {quantity(least[VALUE], 'tokens/s')} "
        f"({least.cell}, {least.device}) to {quantity(most[VALUE], 'tokens/s')} ({most.cell}, {most.device}); the "
        f"thick strokes are {percent(THRESHOLDS['interval'])} intervals of the median step time."
    )
    cell_lines.draw(
        rows, VALUE, "throughput_low_tokens_per_s", "throughput_high_tokens_per_s", label="tokens per second",
        caption=caption, scale=1.0, figure=figure, data=data,
    )  # fmt: skip


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
