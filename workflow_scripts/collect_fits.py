"""Gathers what was decided on each cell's memory before it ran, beside what came of it.

Input:
    cells: cells.csv.
Output:
    fits: fits.csv, a row a cell of the local devices, in bytes: the decision (`fits`, `tried beyond` the border, `left
        out`), the limit and what was predicted to be needed, the measured peak, and the judgement.
"""

from pathlib import Path
from typing import Any

from workflow_scripts.lib import csv_tables
from workflow_scripts.lib.fit_table import FIT_COLUMNS, fit_rows
from workflow_scripts.lib.tables import write_table


def main(*, cells: Path, fits: Path, spec: dict[str, Any]) -> None:
    table = csv_tables.read(cells)
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    write_table(fits, fit_rows(rows, spec["devices"]), FIT_COLUMNS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
