"""Draws what attention alone takes of memory over the context length, and what the device has.

Inputs: attention.csv. Outputs: the figure (SVG) and what it draws (CSV): device, precision, head, sequence_length,
backend, peak_bytes, before_backward_bytes, capacity_bytes, record; drawn in GiB.
"""

from pathlib import Path

from workflow_scripts.lib import csv_tables, probe_lines
from workflow_scripts.lib.quantities import quantity

COLUMNS = ["device", "precision", "head", "sequence_length", "backend", "peak_gib", "before_backward_gib",
           "capacity_gib", "record"]  # fmt: skip
LINES = probe_lines.Lines(
    x="sequence_length", y="peak_gib", series="backend", panels=["device", "precision", "head"],
    x_label="context length (tokens)", y_label="peak (GiB)", level="capacity_gib",
    level_label="all that the device has",
)  # fmt: skip


def main(*, attention: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the combinations whose memory was counted."""
    table = csv_tables.read(attention)
    rows = table[(table.status == "ok") & table.peak_bytes.notna()].copy() if len(table) else table
    if rows.empty:
        probe_lines.nothing(figure, data, "no memory of attention was measured.", COLUMNS)
        return
    for name in ("peak", "before_backward", "capacity"):
        rows[f"{name}_gib"] = rows[f"{name}_bytes"] / 2**30
    rows["head"] = "head " + rows.head_size.astype(int).astype(str)
    rows["backend"] = rows.backend + rows.compiled.map({"compiled": " compiled"}).fillna("")
    largest = rows.loc[rows.peak_bytes.idxmax()]
    caption = (
        f"Memory of attention alone, inputs included. The largest that ran took "
        f"{quantity(largest.peak_bytes, 'bytes')} ({largest.backend}, {largest.precision}, "
        f"{int(largest.sequence_length):,} tokens), of {quantity(largest.capacity_bytes, 'bytes')} that the device "
        "has. Where scores are kept it grows with the square of the context, else in proportion."
    )
    alt = f"Lines of peak memory over context length for {rows.backend.nunique()} backends."
    probe_lines.draw(rows[COLUMNS], LINES, caption=caption, alt=alt, figure=figure, data=data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
