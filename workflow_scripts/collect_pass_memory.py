"""Gathers what passes allocate over their course into three tables.

Inputs:
    probes: the records of all probes; those of other kinds are left aside.
    recordings: recordings of other devices.
Outputs, memory in bytes:
    memory_passes: a row a pass: its peak, those of its phases, what was predicted, what the peak consists of.
    memory_blocks: a row for each of the largest blocks at a pass's peak, layers that are alike in one.
    memory_timeline: a row for each place of a pass that is kept, counted in allocations and frees.
"""

from pathlib import Path
from typing import Any

from workflow_scripts.lib.pass_memory_table import BLOCK_COLUMNS, PASS_COLUMNS, TIMELINE_COLUMNS, pass_memory_rows
from workflow_scripts.lib.record_files import recorded
from workflow_scripts.lib.records import read_record
from workflow_scripts.lib.tables import write_table


def main(
    *, probes: list[Path], recordings: list[Path], memory_passes: Path, memory_blocks: Path, memory_timeline: Path,
    spec: dict[str, Any],
) -> None:  # fmt: skip
    every = [(read_record(path), path) for path in [*sorted(probes), *recorded(recordings, "probes/*.json")]]
    found = [pass_memory_rows(record, path.as_posix()) for record, path in every if record["spec"]["kind"] == "memory"]
    files = ((memory_passes, PASS_COLUMNS), (memory_blocks, BLOCK_COLUMNS), (memory_timeline, TIMELINE_COLUMNS))
    for n, (file, columns) in enumerate(files):
        write_table(file, [row for rows in found for row in rows[n]], columns)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
