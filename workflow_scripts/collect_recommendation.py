"""Sets what was recommended beside the cell that checked it.

Inputs:
    recommendation: recommendation.json.
    checks: the record of the recommended cell on each local device.
    recordings: recordings of other devices, in which such a record may be.
    cells: cells.csv.
    devices: devices.csv.
Outputs:
    recommendation_table: recommendation.csv, a row a device: the plan, predicted times in s and memory in bytes, what
        its check measured, and the prediction's relative error; `reason` where there is no plan.
    batches_table: batches.csv, from which batch on the measured throughput of each model of the grid stops rising.
    sweep_table: batch_sweep.csv, a row a device and batch tried for the recommended model, by prediction.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from workflow_scripts.lib import csv_tables
from workflow_scripts.lib.recommendation_table import COLUMNS, SWEEP_COLUMNS, check_row, plan_row, sweep_rows
from workflow_scripts.lib.record_files import recorded
from workflow_scripts.lib.ways import measured_batches


def main(
    *, recommendation: Path, checks: list[Path], recordings: list[Path], cells: Path, devices: Path,
    recommendation_table: Path, batches_table: Path, sweep_table: Path, spec: dict[str, Any],
) -> None:  # fmt: skip
    advised = json.loads(recommendation.read_text(encoding="utf-8"))
    checked = {path.parent.name: path for path in [*checks, *recorded(recordings, "recommended.json")]}
    rows, sweep = [], []
    for device in csv_tables.read(devices).device:
        values = advised["devices"][device]
        row = {"device": device, **plan_row(values, advised["train_minutes"] * 60)}
        rows.append(row | check_row(checked.get(device), row, values))
        sweep += [{"device": device, **batch} for batch in sweep_rows(values)]
    csv_tables.write(pd.DataFrame(rows, columns=COLUMNS), recommendation_table)
    csv_tables.write(pd.DataFrame(sweep, columns=SWEEP_COLUMNS), sweep_table)
    csv_tables.write(measured_batches(csv_tables.read(cells)), batches_table)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
