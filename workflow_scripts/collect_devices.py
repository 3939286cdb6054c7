"""Gathers the devices into one table.

Inputs:
    devices: each device's device.json.
    recordings: recordings of other devices.
Output:
    devices_table: devices.csv; memory in bytes; `logical_cores` are those that it may use of its host; `origin` is
        `local` or `recorded`.
"""

import json
from pathlib import Path
from typing import Any

from workflow_scripts.lib.record_files import read_text, recorded
from workflow_scripts.lib.tables import write_table

COLUMNS = (
    "device origin type name threads logical_cores memory_bytes compute_capability driver torch python platform host"
).split()


def main(*, devices: list[Path], recordings: list[Path], devices_table: Path, spec: dict[str, Any]) -> None:
    found = [{"origin": "local", **json.loads(read_text(path))} for path in devices]
    found += [{"origin": "recorded", **json.loads(read_text(path))} for path in recorded(recordings, "device.json")]
    rows = [{**device["detected"], **device} for device in found]
    write_table(devices_table, [{name: row.get(name) for name in COLUMNS} for row in rows], COLUMNS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
