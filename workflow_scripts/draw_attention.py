"""Draws how long attention alone takes over the context length, forward and backward together.

Inputs: attention.csv. Outputs: the figure (SVG) and what it draws (CSV): device, precision, head, sequence_length,
backend, both_s (medians of forward and backward added up), forward_s, backward_s, record.
"""

from pathlib import Path

from workflow_scripts.lib import csv_tables, probe_lines
from workflow_scripts.lib.quantities import quantity, times

COLUMNS = ["device", "precision", "head", "sequence_length", "backend", "both_s", "forward_s", "backward_s", "record"]
LINES = probe_lines.Lines(
    x="sequence_length", y="both_s", series="backend", panels=["device", "precision", "head"],
    x_label="context length (tokens)", y_label="forward and backward (s)",
)  # fmt: skip


def main(*, attention: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the combinations that ran."""
    table = csv_tables.read(attention)
    rows = table[table.status == "ok"].copy() if len(table) else table
    if rows.empty:
        probe_lines.nothing(figure, data, "no attention was measured.", COLUMNS)
        return
    rows["both_s"] = rows.forward_s + rows.backward_s
    rows["head"] = "head " + rows.head_size.astype(int).astype(str)
    rows["backend"] = rows.backend + rows.compiled.map({"compiled": " compiled"}).fillna("")
    longest = rows[rows.sequence_length == rows.sequence_length.max()].sort_values("both_s")
    first, last = longest.iloc[0], longest.iloc[-1]
    caption = (
        f"Attention alone over the context length. At {int(first.sequence_length):,} tokens the fastest takes "
        f"{quantity(first.both_s, 's')} ({first.backend}, {first.precision}, {first['head']}), the slowest that fits "
        f"{quantity(last.both_s, 's')}, {times(last.both_s / first.both_s)} as long ({last.backend}, {last.precision}, "
        f"{last['head']}). A line ends where the backend did."
    )
    alt = f"Lines of time over context length for {rows.backend.nunique()} backends."
    probe_lines.draw(rows[COLUMNS], LINES, caption=caption, alt=alt, figure=figure, data=data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
