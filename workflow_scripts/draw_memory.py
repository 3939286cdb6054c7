"""Draws peak memory over batch size, a panel for each device and context length.

Inputs: cells.csv, findings.json. Outputs: the figure (SVG) and what it draws (CSV): device, sequence_length, quantity,
model, n_layer, n_embd, precision, execution, batch_size, cell, record, barred, peak_bytes. `quantity` is what a device
can tell of its cells: what tensors take of it (allocated), or what the whole process takes of the host's memory.
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import barred, cell_lines, csv_tables, facets, plotting
from workflow_scripts.lib.quantities import plural, quantity, unit_for

QUANTITIES = {"peak_allocated_bytes": "allocated", "peak_process_bytes": "whole process"}


def main(*, cells: Path, findings: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the measured cells."""
    table = csv_tables.with_columns(csv_tables.read(cells), list(QUANTITIES))
    timed = barred.mark(facets.timed_steps(table), "cell", findings)
    peaks = [_peaks(of) for _, of in timed.groupby("device")] if len(timed) else []
    if not any(map(len, peaks)):
        reason = facets.why_none(table) if timed.empty else "no cell has a peak of memory that was measured."
        plotting.save_nothing(figure, reason)
        csv_tables.write(pd.DataFrame(columns=["device", "sequence_length", "model", "batch_size"]), data)
        return
    rows = pd.concat(peaks, ignore_index=True)
    said = [
        f"on {device} ({of.quantity.iloc[0]}) from {quantity(of.peak_bytes.min(), 'bytes')} to "
        f"{quantity(of.peak_bytes.max(), 'bytes')}"
        for device, of in rows.groupby("device")
    ]
    caption = f"Peak memory over batch size: {'; '.join(said)}."
    if without := len(timed) - len(rows):
        caption += f" {plural(without, 'cell')} have no such value and are not drawn."
    scale, unit = unit_for(rows.peak_bytes, "bytes")
    cell_lines.draw(
        rows, "peak_bytes", None, None, label=f"peak memory, {unit}", caption=caption, scale=scale, figure=figure,
        data=data,
    )  # fmt: skip


def _peaks(rows: pd.DataFrame) -> pd.DataFrame:
    """Takes of a device's cells the quantity that most of them have, of two as many what is allocated."""
    column = max(QUANTITIES, key=lambda name: rows[name].notna().sum())
    return rows.assign(quantity=QUANTITIES[column], peak_bytes=rows[column]).dropna(subset="peak_bytes")


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
