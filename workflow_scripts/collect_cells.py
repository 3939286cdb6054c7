"""Gathers the cells of all devices into one table, their repeats into another, and fits the cost model.

Inputs:
    cells: the cells' records.
    memory: the records of what was measured of their memory in processes of its own.
    calibrations: each device's calibration.json.
    recordings: recordings of other devices, whose cells come after.
Outputs:
    cells: cells.csv, a row a cell; times in seconds, memory in bytes, intervals at 95 %.
    processes: processes.csv, a row for each cell measured in several processes: n_processes, median_s, spread, cv.
    cost_model: cost_model.json, see `cost_fits.fit_models`.
"""

import json
from pathlib import Path
from typing import Any

from workflow_scripts.lib.cost_fits import fit_models
from workflow_scripts.lib.estimates import spread
from workflow_scripts.lib.memory_table import fill_memory, memory_row
from workflow_scripts.lib.record_files import read_text, recorded
from workflow_scripts.lib.records import write_json
from workflow_scripts.lib.tables import CELL_COLUMNS, cell_row, write_table

PROCESS_COLUMNS = ("device", "cell", "n_processes", "median_s", "spread", "cv")


def main(
    *,
    cells: list[Path],
    memory: list[Path],
    calibrations: list[Path],
    recordings: list[Path],
    cells_table: Path,
    processes: Path,
    cost_model: Path,
    spec: dict[str, Any],
) -> None:
    rows = [cell_row(path) for path in [*sorted(cells), *recorded(recordings, "cells/*.json")]]
    fill_memory(rows, [memory_row(path) for path in [*memory, *recorded(recordings, "memory/*.json")]])
    found = [json.loads(read_text(path)) for path in [*calibrations, *recorded(recordings, "calibration.json")]]
    write_json(cost_model, fit_models(rows, found))
    write_table(cells_table, rows, CELL_COLUMNS)
    write_table(processes, _repeats(rows), PROCESS_COLUMNS)


def _repeats(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    medians: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["status"] == "ok":
            medians.setdefault((row["device"], row["base"]), []).append(row["step_time_s"])
    repeats = []
    for (device, cell), times in medians.items():
        if len(times) > 1:
            widest, cv = spread(times)
            middle = sorted(times)[len(times) // 2]
            repeats.append(dict(zip(PROCESS_COLUMNS, (device, cell, len(times), middle, widest, cv), strict=True)))
    return repeats


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
