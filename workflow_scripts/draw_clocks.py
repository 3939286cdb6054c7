"""Draws the same step under three clocks, over the context length.

Inputs: clocks.csv. Outputs: the figure (SVG) and what it draws (CSV): device, model, mode, sequence_length, clock,
time_s, record.
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, probe_lines
from workflow_scripts.lib.quantities import percent, quantity

COLUMNS = ["device", "model", "mode", "sequence_length", "clock", "time_s", "record"]
CLOCKS = {"host_s": "host, until it is asked for", "device_s": "device, while it is busy", "wall_s": "wall, until done"}
COINCIDE = 0.01  # of the wall time
LINES = probe_lines.Lines(
    x="sequence_length", y="time_s", series="clock", panels=["device", "model", "mode"],
    x_label="context length (tokens)", y_label="time of a step (s)", columns=2, height=2.6,
)  # fmt: skip


def main(*, clocks: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from every context that ran."""
    table = csv_tables.read(clocks)
    rows = table[table.status == "ok"] if len(table) else table
    if rows.empty:
        probe_lines.nothing(figure, data, "no step was timed by several clocks.", COLUMNS)
        return
    parts = [rows.assign(clock=text, time_s=rows[name]) for name, text in CLOCKS.items()]
    drawn = pd.concat([part for part in parts if part.time_s.notna().any()], ignore_index=True)
    far = rows.assign(gap=rows.wall_s - rows.host_s).sort_values("gap").iloc[-1]
    caption = (
        f"One step under several clocks. They are furthest apart at {int(far.sequence_length):,} tokens in "
        f"{far['mode']}: the host is done after {quantity(far.host_s, 's')}, the work after "
        f"{quantity(far.wall_s, 's')}."
        if far.gap > COINCIDE * far.wall_s
        else f"One step under the host's clock and the wall's, which coincide within {percent(COINCIDE)} everywhere."
    )
    alt = f"Lines of {drawn.clock.nunique()} clocks over context length."
    probe_lines.draw(drawn[COLUMNS], LINES, caption=caption, alt=alt, figure=figure, data=data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
