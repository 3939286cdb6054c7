"""Draws what discarding the first steps is worth: the mean of the ten steps after them, over the steady median.

Inputs: warm_up.csv. Outputs: the figure (SVG) and what it draws (CSV): device, mode, execution, n_discarded, excess
(mean over steady, less one; the largest and the middle one of the cells), which, n_cells.
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, probe_lines
from workflow_scripts.lib.quantities import percent

COLUMNS = ["device", "execution", "which", "n_discarded", "excess", "n_cells"]
LINES = probe_lines.Lines(
    x="n_discarded", y="excess", series="which", panels=["device", "execution"], x_base=0,
    x_label="steps discarded first", y_label="excess of the mean", columns=3, height=2.5,
)  # fmt: skip


def main(*, warm_up: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from all cells with samples enough."""
    table = csv_tables.read(warm_up)
    if table.empty:
        probe_lines.nothing(figure, data, "no cell has samples enough.", COLUMNS)
        return
    table["excess"] = table.mean_ratio - 1
    groups = table.groupby(["device", "execution", "n_discarded"])["excess"]
    parts = []
    for which, values in (("the middle cell", groups.median()), ("the worst cell", groups.max())):
        parts.append(values.reset_index().assign(which=which, n_cells=groups.size().to_numpy()))
    drawn = pd.concat(parts, ignore_index=True)
    means = table.groupby("n_discarded")["excess"].median()
    caption = (
        f"What warm-up is worth. Ten steps from the very first one on have a mean {percent(means.iloc[0])} above the "
        f"steady median in the middle cell, after {int(means.index[-1])} discarded steps {percent(means.iloc[-1])}."
    )
    alt = "Lines of the excess of a mean of ten steps over the number of discarded steps."
    probe_lines.draw(drawn[COLUMNS], LINES, caption=caption, alt=alt, figure=figure, data=data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
