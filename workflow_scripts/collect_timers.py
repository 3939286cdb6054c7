"""Gathers what several timers found of the same steps into one table.

Inputs:
    timers: the records.
    recordings: recordings of other devices.
Output:
    timers_table: timers.csv, a row for each cell and timer, times in s per step; see `timer_table.timer_rows`.
"""

from pathlib import Path
from typing import Any

from workflow_scripts.lib.record_files import recorded
from workflow_scripts.lib.tables import write_table
from workflow_scripts.lib.timer_table import TIMER_COLUMNS, timer_rows


def main(*, timers: list[Path], recordings: list[Path], timers_table: Path, spec: dict[str, Any]) -> None:
    every = [*sorted(timers), *recorded(recordings, "timers/*.json")]
    write_table(timers_table, [row for path in every for row in timer_rows(path)], TIMER_COLUMNS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
