"""Sets passes, precisions and executions beside each other, tells what would fit, and what isolation is worth.

Inputs:
    cells: the cells' records.
    probes: the probes' records.
    recordings: recordings of other devices.
    cells_table, processes, devices, corpus: cells.csv, processes.csv, devices.csv, corpus.json.
Outputs, times in s, memory in bytes, intervals at 95 %:
    passes: passes.csv, a row for each pass of each work; see `sizes_table.pass_rows`.
    speedups: speedups.csv, a row for each way of doing it beside fp32, eager.
    fitting: room.csv, a row for each model and way of doing it: the largest batch and context by prediction, checked.
    isolation: isolation.csv, a row for each cell that was measured in one process with others and alone.
"""

import json
from pathlib import Path
from typing import Any

from workflow_scripts.lib import csv_tables, sizes_table
from workflow_scripts.lib.fits import Room, room
from workflow_scripts.lib.isolation_table import ISOLATION_COLUMNS, isolation_rows
from workflow_scripts.lib.quantities import is_missing
from workflow_scripts.lib.record_files import recorded
from workflow_scripts.lib.records import read_record
from workflow_scripts.lib.room_table import ROOM_COLUMNS, room_rows
from workflow_scripts.lib.specs import DeviceSpec
from workflow_scripts.lib.tables import write_table


def main(
    *, cells: list[Path], probes: list[Path], recordings: list[Path], cells_table: Path, processes: Path, devices: Path,
    corpus: Path, passes: Path, speedups: Path, fitting: Path, isolation: Path, spec: dict[str, Any],
) -> None:  # fmt: skip
    """Writes the tables; `spec["caps_gib"]` has the config's limits of memory by device."""
    table = csv_tables.read(cells_table)
    write_table(passes, sizes_table.pass_rows(table), sizes_table.PASS_COLUMNS)
    rows = sizes_table.speedup_rows(table, csv_tables.read(processes))
    write_table(speedups, rows, sizes_table.SPEEDUP_COLUMNS)
    data = json.loads(corpus.read_text(encoding="utf-8"))
    asked = [(read_record(path), path.as_posix()) for path in [*sorted(cells), *recorded(recordings, "cells/*.json")]]
    fits: list[dict[str, Any]] = []
    for device in csv_tables.read(devices).to_dict("records"):
        own = [(record, path) for record, path in asked if record["spec"]["device"]["id"] == device["device"]]
        mine = table[(table.device == device["device"]) & table.peak_allocated_bytes.notna()]
        where = _room(device, spec["caps_gib"].get(device["device"]), data)
        fits += room_rows(own, where, dict(zip(mine.cell, mine.peak_allocated_bytes, strict=True)))
    write_table(fitting, fits, ROOM_COLUMNS)
    found = [(read_record(path), path.as_posix()) for path in [*sorted(probes), *recorded(recordings, "probes/*.json")]]
    alone = [row for record, path in found if record["spec"]["kind"] == "isolation"
             for row in isolation_rows(record, path)]  # fmt: skip
    write_table(isolation, alone, ISOLATION_COLUMNS)


def _room(device: dict[str, Any], cap_gib: float | None, corpus: dict[str, Any]) -> Room:
    """The memory of a row of devices.csv."""
    known = {name: None if is_missing(value) else value for name, value in device.items()}
    found = {"type": device["type"], "index": None} | {key: known[key] for key in ("name", "compute_capability")}
    found["memory_bytes"] = known["memory_bytes"] and int(known["memory_bytes"])
    named = DeviceSpec(id=device["device"], type=device["type"], threads=1)
    n_tokens = corpus["splits"]["train"]["stop"] - corpus["splits"]["train"]["start"]
    return room(named, cap_gib, [found], corpus["vocab_size"], n_tokens)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
