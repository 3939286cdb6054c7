"""Judges where each training converged, and which learning rate is the best of each optimizer.

Inputs: runs.csv, curves.csv.
Outputs:
    convergence: convergence.csv, a row a run: tokens, with the evaluations around them, from which on the smoothed
        validation loss stays near its last value; `steady`; where the gradient norm settled.
    optimizers: optimizer_sweep.csv, a row for each model, optimizer and learning rate, where several were tried.
"""

from pathlib import Path
from typing import Any

from workflow_scripts.lib import convergence as rule
from workflow_scripts.lib import csv_tables, optimizer_sweep
from workflow_scripts.lib.tables import write_table


def main(*, runs: Path, curves: Path, convergence: Path, optimizers: Path, spec: Any) -> None:
    trained, histories = csv_tables.read(runs), csv_tables.read(curves)
    write_table(convergence, rule.judge_convergence(histories), rule.COLUMNS)
    write_table(optimizers, optimizer_sweep.sweep_optimizers(trained, histories), optimizer_sweep.COLUMNS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
