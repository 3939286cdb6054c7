"""Gathers the cells of all devices into one table, their repeats into another, and fits the cost model.

Inputs:
    cells: the cells' records.
    memory: the records of what was measured of their memory in processes of its own.
    recordings: recordings of other devices, whose cells come after.
Outputs:
    cells: cells.csv, a row a cell; times in seconds, memory in bytes, intervals at 95 %.
    processes: processes.csv, a row for each cell measured in several processes: n_processes, median_s, spread, cv.
    cost_model: for each device, precision and execution the fitted costs and the error on cells left out.
"""

import dataclasses
from pathlib import Path
from typing import Any

from workflow_scripts.lib.cost_model import FEATURES, fit
from workflow_scripts.lib.estimates import spread
from workflow_scripts.lib.memory_table import fill_memory, memory_row
from workflow_scripts.lib.record_files import recorded
from workflow_scripts.lib.records import read_record, write_json
from workflow_scripts.lib.specs import ModelShape, from_json
from workflow_scripts.lib.tables import CELL_COLUMNS, cell_row, write_table

PROCESS_COLUMNS = ("device", "cell", "n_processes", "median_s", "spread", "cv")


def main(
    *,
    cells: list[Path],
    memory: list[Path],
    recordings: list[Path],
    cells_table: Path,
    processes: Path,
    cost_model: Path,
    spec: dict[str, Any],
) -> None:
    rows = [cell_row(path) for path in [*sorted(cells), *recorded(recordings, "cells/*.json")]]
    fill_memory(rows, [memory_row(path) for path in [*memory, *recorded(recordings, "memory/*.json")]])
    models: dict[str, dict[str, Any]] = {}
    for (device, group), members in _groups(rows).items():
        shapes = [from_json(ModelShape, read_record(Path(row["record"]))["spec"]["model"]) for row in members]
        work = [(shape, row["batch_size"]) for shape, row in zip(shapes, members, strict=True)]
        fitted = fit(work, [row["step_time_s"] for row in members])
        if fitted:
            model, left_out = fitted
            models.setdefault(device, {})[group] = dataclasses.asdict(model)
            for row, predicted_s in zip(members, left_out, strict=True):
                row["predicted_step_time_s"] = predicted_s
    write_json(cost_model, {"features": FEATURES, "devices": models})
    write_table(cells_table, rows, CELL_COLUMNS)
    write_table(processes, _repeats(rows), PROCESS_COLUMNS)


def _groups(rows: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Measured full steps, first process each, by device and by precision and execution."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["status"] == "ok" and row["mode"] == "step" and row["process"] == 1 and row["attention"] == "auto":
            groups.setdefault((row["device"], f"{row['precision']}-{row['execution']}"), []).append(row)
    return groups


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
