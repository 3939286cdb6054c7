"""Draws how long each pass takes over the size of the model, a line for each precision and execution.

Inputs: passes.csv. Outputs: the figure (SVG) and what it draws (CSV): rows of passes.csv, and `way`, its line.
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, probe_lines
from workflow_scripts.lib.quantities import quantity
from workflow_scripts.lib.sizes_table import PASS_COLUMNS, of_sizes

DRAWN = {"forward": "forward", "backward": "backward", "step": "whole step"}
LINES = probe_lines.Lines(
    x="n_params", y="time_s", series="way", panels=["device", "part"], x_base=10, x_label="parameters",
    y_label="time (s)", columns=3, height=2.6,
)  # fmt: skip


def main(*, passes: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the models of one batch and context."""
    rows = of_sizes(csv_tables.read(passes))
    rows = rows[rows["pass"].isin(DRAWN) & rows.time_s.notna()] if len(rows) else rows
    columns = [*PASS_COLUMNS, "way", "part"]
    if rows.empty:
        probe_lines.nothing(figure, data, "fewer than three models were timed at one batch and context.", columns)
        return
    parts = pd.Categorical(rows["pass"].map(DRAWN), categories=list(DRAWN.values()), ordered=True)
    drawn = rows.assign(way=rows.precision.str.cat(rows.execution, sep=", "), part=parts)
    work = rows.iloc[0]
    longest = rows.loc[rows.time_s.idxmax()]
    caption = (
        f"Time of each pass over the number of parameters, {int(work.batch_size):,} sequences of "
        f"{int(work.sequence_length):,} tokens, both axes logarithmic. The longest, a {longest['pass']} of "
        f"`{longest.model}` in {longest.precision}, {longest.execution}, takes {quantity(longest.time_s, 's')}."
    )
    alt = f"Lines of time over parameters for {', '.join(sorted(set(drawn.way)))}."
    probe_lines.draw(drawn[columns], LINES, caption=caption, alt=alt, figure=figure, data=data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
