"""Recommends for each device what to train there in the given time, by prediction.

Inputs:
    cells, processes: cells.csv and processes.csv, which show the ways of computing that are faster beyond noise.
    cost_model: costs fitted on the grid.
    devices: devices.csv, with type and memory of each.
Output:
    recommendation: recommendation.json: the time asked for, and for each device the plan (shape, step, tokens, times
        in s, memory in bytes, the batches tried) with the cell that checks it, or the reason why there is none.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd

from workflow_scripts.lib import comparisons, csv_tables
from workflow_scripts.lib.forecast import read_forecaster
from workflow_scripts.lib.recommendation import Plan, Task, recommend
from workflow_scripts.lib.records import write_json
from workflow_scripts.lib.specs import CellSpec, DeviceSpec, MeasureSpec, OptimizerSpec, StepSpec, from_json, to_json
from workflow_scripts.lib.ways import Way, fastest_way

HELD = 0.75  # of a recorded device's memory for tensors; what a local one has for them is in the spec


def main(
    *, cells: Path, processes: Path, cost_model: Path, devices: Path, recommendation: Path, spec: dict[str, Any]
) -> None:
    timed, repeats, known = (csv_tables.read(path) for path in (cells, processes, devices))
    forecaster = read_forecaster(cost_model, known.to_dict("records"))
    optimizer = from_json(OptimizerSpec, spec["optimizer"])
    plans = {}
    for device, kind, memory_bytes in zip(known.device, known.type, known.memory_bytes, strict=True):
        trained = from_json(StepSpec, spec["steps"].get(device) or spec["recorded_steps"][kind])
        own = Way(precision=trained.precision, execution=trained.execution)
        way = fastest_way(timed, device, own, comparisons.noise_floor(repeats, device))
        compared = way.over or own
        step = dataclasses.replace(trained, precision=compared.precision, execution=compared.execution)
        task = Task(
            device=device, base=spec["model"], vocab_size=spec["vocab_size"], sequence_length=spec["sequence_length"],
            step=step, optimizer=optimizer, train_s=spec["recommendation"]["train_minutes"] * 60,
            tokens_per_parameter=spec["recommendation"]["tokens_per_parameter"],
            limit_bytes=spec["limits_bytes"].get(device, None if pd.isna(memory_bytes) else HELD * memory_bytes),
        )  # fmt: skip
        plan = recommend(task, way, forecaster)
        plans[device] = {"reason": plan} if isinstance(plan, str) else _told(plan, way, device, spec)
    write_json(recommendation, {**spec["recommendation"], "devices": plans})


def _told(plan: Plan, way: Way, device: str, spec: dict[str, Any]) -> dict[str, Any]:
    """The plan as JSON, with the cell that checks it where the device is a local one."""
    cell = None
    if device in spec["devices"]:
        cell = to_json(
            CellSpec(
                id="recommended", name="recommended", base="recommended",
                device=from_json(DeviceSpec, spec["devices"][device]), model=plan.shape, step=plan.step,
                optimizer=from_json(OptimizerSpec, spec["optimizer"]), mode="step",
                measure=from_json(MeasureSpec, spec["measure"]), process=1, fresh=False, seed=0,
            )
        )  # fmt: skip
    return {"reason": None, "way": dataclasses.asdict(way), "plan": to_json(plan), "cell": cell}


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
