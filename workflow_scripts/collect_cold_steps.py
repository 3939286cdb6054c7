"""Tells from the cells what warm-up is worth, and when compiling has paid for itself.

Inputs:
    cells: the cells' records, whose samples are in order.
    recordings: recordings of other devices.
    cells_table: cells.csv.
Outputs:
    warm_up: warm_up.csv, a row for each cell and number of discarded steps; see `cold_steps.warm_up_rows`.
    executions: executions.csv, a row for each cell that was compiled or graphed; see `cold_steps.execution_rows`.
"""

from pathlib import Path
from typing import Any

from workflow_scripts.lib import csv_tables
from workflow_scripts.lib.cold_steps import EXECUTION_COLUMNS, WARM_UP_COLUMNS, execution_rows, warm_up_rows
from workflow_scripts.lib.record_files import recorded
from workflow_scripts.lib.records import read_record
from workflow_scripts.lib.tables import write_table


def main(
    *, cells: list[Path], recordings: list[Path], cells_table: Path, warm_up: Path, executions: Path,
    spec: dict[str, Any],
) -> None:  # fmt: skip
    every = [*sorted(cells), *recorded(recordings, "cells/*.json")]
    rows = [row for path in every for row in warm_up_rows(read_record(path), path.as_posix())]
    write_table(warm_up, rows, WARM_UP_COLUMNS)
    write_table(executions, execution_rows(csv_tables.read(cells_table)), EXECUTION_COLUMNS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
