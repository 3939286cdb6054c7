"""What a study would take, told before it is run: each cell and each training with its predicted time and memory.

Memory follows from the closed form. Times follow from the cost model of an earlier run of the study; without one they
are not predicted, and only what the config bounds is told.
"""

from collections.abc import Sequence
from typing import Any

from workflow_scripts.lib.forecast import Forecaster
from workflow_scripts.lib.plan import duration
from workflow_scripts.lib.specs import CellSpec, ModelShape, OptimizerSpec, RunSpec, StepSpec, from_json

UNKNOWN = "not predicted"
GIB = 2**30


def cell_entry(cell: CellSpec, needed_bytes: int, forecaster: Forecaster) -> dict[str, Any]:
    """A cell of the plan: samples are taken for `max_seconds`, or for as long as the fewest of them take."""
    step_s = None
    if cell.mode == "step":
        step_s = _step_time_s(forecaster, cell.device.id, cell.model, cell.step, cell.optimizer)
    least_s = None if step_s is None else (1 + cell.measure.min_samples) * step_s
    return {
        "kind": "cell",
        "device": cell.device.id,
        "id": cell.id,
        "step_time_s": step_s,
        "time_s": None if least_s is None else max(least_s, cell.measure.max_seconds),
        "needed_bytes": needed_bytes,
    }


def run_entry(run: RunSpec, needed_bytes: int, forecaster: Forecaster) -> dict[str, Any]:
    """A training of the plan: its steps, without evaluations."""
    step_s = _step_time_s(forecaster, run.device.id, run.model, run.step, run.optimizer)
    return {
        "kind": "run",
        "device": run.device.id,
        "id": run.id,
        "step_time_s": step_s,
        "time_s": None if step_s is None else step_s * run.n_steps,
        "needed_bytes": needed_bytes,
    }


def entries(planned: Sequence[dict[str, Any]], forecaster: Forecaster) -> list[dict[str, Any]]:
    """Gives the plan's rows from what the workflow lists: `cell` or `run` as JSON with `needed_bytes`.

    A training whose model is not selected yet comes as its `id` and `device` alone.
    """
    found = []
    for one in planned:
        if "cell" in one:
            found.append(cell_entry(from_json(CellSpec, one["cell"]), one["needed_bytes"], forecaster))
        elif "run" in one:
            found.append(run_entry(from_json(RunSpec, one["run"]), one["needed_bytes"], forecaster))
        else:
            found.append({"kind": "run", **one, "step_time_s": None, "time_s": None, "needed_bytes": None})
    return found


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The plan for a person: a line for each cell and training, then the totals of each device."""
    width = max((len(f"{row['device']}/{row['id']}") for row in rows), default=0)
    told = [
        f"{row['kind']:4}  {row['device'] + '/' + row['id']:{width}}  step {_milliseconds(row['step_time_s']):>14}  "
        f"time {_time(row['time_s']):>13}  memory {_memory(row['needed_bytes']):>13}"
        for row in rows
    ]
    for device in dict.fromkeys(row["device"] for row in rows):
        for kind, noun in (("cell", "cells to time"), ("run", "trainings")):
            own = [row for row in rows if (row["device"], row["kind"]) == (device, kind)]
            if own:
                told.append(f"{device}: {len(own)} {noun}, {_total(own)}")
    return told


def _total(rows: Sequence[dict[str, Any]]) -> str:
    known = [row["time_s"] for row in rows if row["time_s"] is not None]
    if not known:
        return f"time {UNKNOWN}"
    rest = len(rows) - len(known)
    return f"{duration(sum(known))} predicted{f', and {rest} {UNKNOWN}' if rest else ''}"


def _step_time_s(
    forecaster: Forecaster, device: str, model: ModelShape, step: StepSpec, optimizer: OptimizerSpec
) -> float | None:
    if not forecaster.knows(device, step):
        return None
    return forecaster.forecast(device, model, step, optimizer).step_time_s


def _milliseconds(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else f"{1e3 * seconds:.4g} ms"


def _time(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else duration(seconds)


def _memory(n_bytes: int | None) -> str:
    return UNKNOWN if n_bytes is None else f"{n_bytes / GIB:.3g} GiB"
