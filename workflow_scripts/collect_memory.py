"""Gathers what was measured of memory into one table.

Inputs:
    memory: the records.
    recordings: recordings of other devices.
Output:
    memory_table: memory.csv, a row a cell, in bytes: the allocated peak of one steady step and of its phases, what was
        predicted, the growth of a process (footprint), and what a device's driver tells; with methods.
"""

from pathlib import Path
from typing import Any

from workflow_scripts.lib.memory_table import MEMORY_COLUMNS, memory_row
from workflow_scripts.lib.record_files import recorded
from workflow_scripts.lib.tables import write_table


def main(*, memory: list[Path], recordings: list[Path], memory_table: Path, spec: dict[str, Any]) -> None:
    every = [*sorted(memory), *recorded(recordings, "memory/*.json")]
    write_table(memory_table, [memory_row(path) for path in every], MEMORY_COLUMNS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
