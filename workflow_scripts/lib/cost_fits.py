"""The cost models of a study: for each calibrated device, precision and execution one, fitted on its measured steps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workflow_scripts.lib.cost_model import Case, TimeModel, as_json
from workflow_scripts.lib.operator_rates import read_rates
from workflow_scripts.lib.records import read_record
from workflow_scripts.lib.specs import DeviceType, ModelShape, OptimizerSpec, StepSpec, from_json
from workflow_scripts.lib.step_costs import step_traffic_bytes

EXECUTIONS: dict[DeviceType, tuple[str, ...]] = {
    "cpu": ("eager", "compiled"),
    "cuda": ("eager", "compiled", "graphed"),
    "mps": ("eager", "compiled"),
}
FEW = (3, 8)  # measured cells from which the rest is predicted, to tell what so few are worth
PREDICTED = ("predicted_step_time_s", "predicted_step_time_low_s", "predicted_step_time_high_s", "predicted_bound")


def fit_models(rows: Sequence[dict[str, Any]], calibrations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Fits the models and writes into the rows of cells.csv what they say of each cell.

    Args:
        rows: of cells, with their `record`; those of full steps get the columns `PREDICTED`, from a model that did not
            see the cell, and all of them `moved_bytes_per_step`.
        calibrations: of the devices.

    Returns:
        The content of cost_model.json: for each device `type`, `rates`, `cases` (see `cost_model.read_models`), and
        `errors` by precision and execution: `n_fitted`; relative mean absolute `leave_one_out_error`, with the share
        of cells `within_interval`; `fresh_model_error` by the cells of other models (None with one model);
        `uncorrected_error` of the calibrated sum; `error_from`, by number of cells; and `repeat_error`, by how much a
        cell differs in further processes (None without): no prediction can be expected to agree better.
    """
    devices = {}
    for calibration in calibrations:
        device = calibration["device"]
        models = fit_device(rows, calibration)
        members = {group: [row for row in rows if row["device"] == device and _group(row) == group] for group in models}
        own = [row for row in rows if row["device"] == device]
        errors = {
            group: {**_judge(models[group], of_group), "repeat_error": _repeat_error(of_group, own)}
            for group, of_group in members.items() if of_group
        }  # fmt: skip
        if models:
            devices[device] = {**as_json(models), "errors": errors}
    for row in rows:
        if row["mode"] == "step":
            cell = read_record(Path(row["record"]))["spec"]
            row["moved_bytes_per_step"] = step_traffic_bytes(
                from_json(ModelShape, cell["model"]), from_json(StepSpec, cell["step"])
            )
    return {"devices": devices}


def fit_device(rows: Sequence[dict[str, Any]], calibration: dict[str, Any]) -> dict[str, TimeModel]:
    """Fits the models of one device by precision and execution, on its rows among those of cells.csv."""
    kind = calibration["spec"]["device"]["type"]
    models = {}
    for precision, rates in read_rates(calibration).items():
        for execution in EXECUTIONS[kind]:
            group = f"{precision}-{execution}"
            members = [row for row in rows if row["device"] == calibration["device"] and _group(row) == group]
            models[group] = TimeModel(device_type=kind, rates=rates, cases=tuple(_case(row) for row in members))
    return models


def _judge(model: TimeModel, members: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Predicts each cell by the others, writes that into its row, and sums up how far off it was."""
    predictions, off, within, uncorrected = model.left_out(), [], [], []
    for row, case, predicted in zip(members, model.cases, predictions, strict=True):
        values = (predicted.step_time_s, predicted.low_s, predicted.high_s, predicted.bound)
        row.update(zip(PREDICTED, values, strict=True))
        off.append(abs(predicted.step_time_s / case.step_time_s - 1))
        within.append(predicted.low_s <= case.step_time_s <= predicted.high_s)
        uncorrected.append(abs(model.sum_s(case.shape, case.step, case.optimizer) / case.step_time_s - 1))
    fresh = model.by_other_models()
    fresh_off = [
        abs(one.step_time_s / case.step_time_s - 1) for one, case in zip(fresh or (), model.cases, strict=False)
    ]
    n = len(members)
    return {
        "n_fitted": n,
        "leave_one_out_error": sum(off) / n,
        "within_interval": sum(within) / n,
        "fresh_model_error": sum(fresh_off) / n if fresh else None,
        "uncorrected_error": sum(uncorrected) / n,
        "error_from": {str(k): model.error_from(k) for k in FEW},
    }


def _repeat_error(members: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> float | None:
    """The mean difference of cells in further processes from the first, relative; None where none has any."""
    first = {row["cell"]: row["step_time_s"] for row in members}
    off = [
        abs(row["step_time_s"] / first[row["base"]] - 1)
        for row in rows if row["process"] > 1 and row["status"] == "ok" and row["base"] in first
    ]  # fmt: skip
    return sum(off) / len(off) if off else None


def _group(row: dict[str, Any]) -> str | None:
    """The precision and execution of a measured full step; of a cell in several processes the first counts."""
    full = row["status"] == "ok" and row["mode"] == "step" and row["process"] == 1 and row["attention"] == "auto"
    return f"{row['precision']}-{row['execution']}" if full else None


def _case(row: dict[str, Any]) -> Case:
    cell = read_record(Path(row["record"]))["spec"]
    return Case(
        shape=from_json(ModelShape, cell["model"]),
        step=from_json(StepSpec, cell["step"]),
        optimizer=from_json(OptimizerSpec, cell["optimizer"]),
        step_time_s=row["step_time_s"],
    )
