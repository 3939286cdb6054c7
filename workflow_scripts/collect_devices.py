"""Gathers the devices into one table.

Inputs:
    devices: each device's device.json.
Output:
    devices_table: devices.csv; memory in bytes.
"""

import json
from pathlib import Path
from typing import Any

from workflow_scripts.lib.tables import write_table

COLUMNS = ("device type name threads memory_bytes driver torch python platform host").split()


def main(*, devices: list[Path], devices_table: Path, spec: dict[str, Any]) -> None:
    found = [json.loads(path.read_text(encoding="utf-8")) for path in devices]
    write_table(devices_table, [{name: device.get(name) for name in COLUMNS} for device in found], COLUMNS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
