"""Compares every two devices at each model that both trained: throughput, where its ratio comes from, time to a loss.

Inputs:
    runs, curves, cells, ceilings: runs.csv, curves.csv, cells.csv, ceilings.csv.
    cost_model: cost_model.json, for what bounds a step.
    records, recordings: the runs' records, of this machine and inside recordings, for their complete specs.
Output:
    comparison: device_comparison.csv; a row a model and pair of devices, the faster one (`a`) first: rates in tokens/s,
        `ratio` of them with its interval, shares of the measured ceiling, times to `target_loss` (nats per token) in s,
        J a token, cost of a million tokens in `currency`; `not_compared` says what is missing and why.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from workflow_scripts.lib import csv_tables
from workflow_scripts.lib.cost_model import read_models
from workflow_scripts.lib.device_comparison import COLUMNS, bound_by_scaling, compare_devices
from workflow_scripts.lib.records import read_record
from workflow_scripts.lib.specs import ModelShape, OptimizerSpec, StepSpec, from_json
from workflow_scripts.lib.tables import write_table


def main(
    *, runs: Path, curves: Path, cells: Path, ceilings: Path, cost_model: Path, records: list[Path],
    recordings: list[Path], comparison: Path, spec: dict[str, Any],
) -> None:  # fmt: skip
    """Writes the table; `spec` has the `prices` of a device's hour and their `currency`."""
    timed, best = csv_tables.read(cells), csv_tables.read(ceilings)
    models = read_models(cost_model)

    def bound_of(run: pd.Series) -> tuple[str | None, str]:
        model = models.get(run.device, {}).get(f"{run.precision}-{run.execution}")
        if model is None or not model.cases:
            return bound_by_scaling(run, timed, best)
        asked = read_record(Path(run.record))["spec"]
        shape, step = from_json(ModelShape, asked["model"]), from_json(StepSpec, asked["step"])
        return model.predict(shape, step, from_json(OptimizerSpec, asked["optimizer"])).bound, "the cost model"

    rows = compare_devices(
        runs=csv_tables.read(runs), curves=csv_tables.read(curves), ceilings=best, bound_of=bound_of,
        prices=spec["prices"], currency=spec["currency"],
    )  # fmt: skip
    write_table(comparison, rows, COLUMNS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
