"""Chooses the model of each role.

Input:
    cost_model: costs fitted on the grid, by device and by precision and execution.
    devices: devices.csv, with the type of each.
    recordings: recordings of other devices whose models are adopted.
Outputs:
    selection: selection.json: shapes of the roles, their parameters, FLOPs and predicted costs, all ratios, the
        reasons, the runners-up.
    candidates: candidates.csv, a row for each shape considered and device: its size in the matched quantity, predicted
        step_time_s, train_s and peak_bytes, the budgets that it overruns, and the role that it was chosen for.
"""

import json
from pathlib import Path
from typing import Any

from workflow_scripts.lib import csv_tables
from workflow_scripts.lib.adoption import adopt
from workflow_scripts.lib.candidates import CANDIDATE_COLUMNS, Cost, candidate_rows
from workflow_scripts.lib.forecast import read_forecaster
from workflow_scripts.lib.record_files import read_text
from workflow_scripts.lib.records import write_json
from workflow_scripts.lib.selection import choose
from workflow_scripts.lib.specs import ModelShape, OptimizerSpec, StepSpec, from_json
from workflow_scripts.lib.tables import write_table


def main(
    *, cost_model: Path, devices: Path, recordings: list[Path], selection: Path, candidates: Path, spec: dict[str, Any]
) -> None:
    optimizer = from_json(OptimizerSpec, spec["optimizer"])
    known = csv_tables.read(devices)
    forecaster = read_forecaster(cost_model, known.to_dict("records"))
    steps = {
        device: from_json(StepSpec, spec["steps"].get(device) or spec["recorded_steps"][kind])
        for device, kind in forecaster.types.items()
    }
    # A recorded device without a cost model says nothing of what a model would take there.
    asked = [device for device in steps if device in spec["steps"] or forecaster.knows(device, steps[device])]

    def predict(shape: ModelShape) -> dict[str, Cost]:
        costs = {}
        for device in asked:
            expected = forecaster.forecast(device, shape, steps[device], optimizer)
            time_s = expected.step_time_s
            train_s = None if time_s is None else time_s * spec["n_steps"]
            costs[device] = Cost(step_time_s=time_s, train_s=train_s, peak_bytes=expected.peak_bytes)
        return costs

    asked_for = (spec["selection"], spec["vocab_size"], spec["sequence_length"], predict)
    recorded = {path.stem: json.loads(read_text(path / "selection.json")) for path in recordings}
    chosen = adopt(recorded, *asked_for, list(spec["steps"])) if recorded else choose(*asked_for)
    write_json(selection, chosen.selection)
    write_table(candidates, candidate_rows(chosen.field, spec["selection"], chosen.roles), CANDIDATE_COLUMNS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
