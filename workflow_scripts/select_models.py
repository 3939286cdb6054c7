"""Chooses the wide and the deep model.

Input:
    cost_model: costs fitted on the grid, by device and by precision and execution.
Output:
    selection: selection.json: the two shapes, their parameters, FLOPs and predicted costs, all ratios, the reasons,
        the runners-up.
"""

import json
from pathlib import Path
from typing import Any

from workflow_scripts.lib.cost_model import CostModel
from workflow_scripts.lib.counts import estimate_memory
from workflow_scripts.lib.records import write_json
from workflow_scripts.lib.selection import Cost, choose
from workflow_scripts.lib.specs import ModelShape, OptimizerSpec, StepSpec, from_json


def main(*, cost_model: Path, selection: Path, spec: dict[str, Any]) -> None:
    step, optimizer = from_json(StepSpec, spec["step"]), from_json(OptimizerSpec, spec["optimizer"])
    fitted = json.loads(cost_model.read_text(encoding="utf-8"))["devices"]

    def predict(shape: ModelShape) -> dict[str, Cost]:
        costs = {}
        for device, kind in spec["devices"].items():
            values = fitted.get(device, {}).get(f"{step.precision}-{step.execution}")
            step_time_s = from_json(CostModel, values).step_time_s(shape, step.batch_size) if values else None
            costs[device] = Cost(
                step_time_s=step_time_s,
                train_s=step_time_s and step_time_s * spec["n_steps"],
                peak_bytes=estimate_memory(shape, step, optimizer, kind).peak_bytes,
            )
        return costs

    write_json(selection, choose(spec["selection"], spec["vocab_size"], spec["sequence_length"], predict))


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
