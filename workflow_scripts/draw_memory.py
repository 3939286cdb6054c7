"""Draws peak memory over batch size, a panel for each device and context length.

Inputs: cells.csv, findings.json. Outputs: the figure (SVG) and what it draws (CSV): device, sequence_length, model,
n_layer, n_embd, precision, execution, batch_size, cell, record, barred and one column of bytes, the same quantity for
every point: peak_allocated_bytes where each drawn cell has it, else peak_process_bytes.
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import barred, cell_lines, csv_tables, facets, plotting
from workflow_scripts.lib.quantities import plural, quantity, unit_for

QUANTITIES = {"peak_allocated_bytes": "peak allocated", "peak_process_bytes": "peak of the whole process"}


def main(*, cells: Path, findings: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the measured cells."""
    table = csv_tables.with_columns(csv_tables.read(cells), list(QUANTITIES))
    timed = barred.mark(facets.timed_steps(table), "cell", findings)
    value = max(QUANTITIES, key=lambda name: int(timed[name].notna().sum()) if len(timed) else 0)
    rows = timed[timed[value].notna()] if len(timed) else timed
    if rows.empty:
        reason = facets.why_none(table) if timed.empty else "no cell has a peak of memory that was measured."
        plotting.save_nothing(figure, reason)
        csv_tables.write(pd.DataFrame(columns=["device", "sequence_length", "model", "batch_size"]), data)
        return
    name, without = QUANTITIES[value], len(timed) - len(rows)
    scale, unit = unit_for(rows[value], "bytes")
    caption = (
        f"Peak memory over batch size: the {name}, from {quantity(rows[value].min(), 'bytes')} to "
        f"{quantity(rows[value].max(), 'bytes')}."
    )
    if without:
        caption += f" {plural(without, 'cell')} have no such value and are not drawn."
    cell_lines.draw(
        rows, value, None, None, label=f"{name}, {unit}", caption=caption, scale=scale, figure=figure, data=data
    )


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
