"""Gathers the devices into one table.

Inputs:
    devices, calibrations: each device's device.json and calibration.json.
    recordings: recordings of other devices.
Output:
    devices_table: devices.csv; memory in bytes; `logical_cores` are those that it may use of its host; `origin` is
        `local` or `recorded`; `sync_check_ratio` is how many times as long twice the work took by the device's clock
        in the self-check of calibration, the smallest of its clocks.
"""

import json
from pathlib import Path
from typing import Any

from workflow_scripts.lib.record_files import read_text, recorded
from workflow_scripts.lib.tables import write_table

COLUMNS = (
    "device origin type name threads logical_cores memory_bytes compute_capability driver torch python platform host "
    "sync_check_ratio"
).split()


def main(
    *, devices: list[Path], calibrations: list[Path], recordings: list[Path], devices_table: Path, spec: dict[str, Any]
) -> None:
    found = [{"origin": "local", **json.loads(read_text(path))} for path in devices]
    found += [{"origin": "recorded", **json.loads(read_text(path))} for path in recorded(recordings, "device.json")]
    calibrated = [json.loads(read_text(p)) for p in [*calibrations, *recorded(recordings, "calibration.json")]]
    ratios = {one["device"]: sync_check_ratio(one) for one in calibrated}
    rows = [{**device["detected"], **device, "sync_check_ratio": ratios.get(device["device"])} for device in found]
    write_table(devices_table, [{name: row.get(name) for name in COLUMNS} for row in rows], COLUMNS)


def sync_check_ratio(calibration: dict[str, Any]) -> float | None:
    """The smallest ratio of a device's clocks; None where no clock could resolve one."""
    found = (calibration.get("synchronisation") or {}).get("ratios") or {}
    return min((ratio for ratio in found.values() if ratio is not None), default=None)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
