"""What is not measured: what calibration found to be wrong, and what cannot end in time at the device's best rate.

A leaf without torch, so that the job that would measure can ask before it starts anything.
"""

import dataclasses
import datetime
import json
from pathlib import Path
from typing import Any

from workflow_scripts.lib.counts import flops_per_token
from workflow_scripts.lib.outcome import Outcome, Status
from workflow_scripts.lib.specs import CellSpec

BARRED = "barred"
MARGIN = 2.0  # some shape may suit a device better than any that calibration tried


def barred_outcome(calibration: Path, step: dict[str, Any]) -> Outcome | None:
    """Gives the outcome of a measurement that must not be made; None where it may.

    Args:
        calibration: the device's calibration.json.
        step: the `StepSpec` as JSON; its `precision` and `execution` count.
    """
    reason = barred_reason(_read(calibration), step["precision"], step["execution"])
    return None if reason is None else _not_measured(BARRED, reason)


def outsized_outcome(spec: dict[str, Any]) -> Outcome | None:
    """Gives the outcome of what was predicted not to fit when the workflow was read; None where it may.

    Args:
        spec: the rule's spec; `predicted_oom` holds the bytes that would be needed, where it is to be left out.
    """
    needed = spec.get("predicted_oom")
    if needed is None:
        return None
    reason = f"not tried: predicted to need {needed / 2**30:.3g} GiB, more than this device has for it"
    return dataclasses.replace(_not_measured("predicted_oom", reason), result={"predicted_bytes": needed})


def hopeless_outcome(calibration: Path, cell: CellSpec) -> Outcome | None:
    """Gives the outcome of a cell that would overrun its time whatever happened; None where it may not.

    Its matrix products, at `MARGIN` times the best rate that calibration saw in this precision, take longer than
    `timeout_s` for the fewest steps that say something: a bound from below, so that no cell is left out that may end.
    """
    best = max(
        (
            ceiling["best"]
            for ceiling in _read(calibration)["ceilings"]
            if ceiling["quantity"] == "matrix_product"
            and ceiling["precision"] == cell.step.precision
            and ceiling.get("best")
        ),
        default=None,
    )
    if best is None or cell.mode == "optimizer":
        return None
    flops = flops_per_token(cell.model, cell.model.sequence_length)
    tokens = cell.step.batch_size * cell.model.sequence_length
    step_s = tokens * (flops.forward if cell.mode == "forward" else flops.training) / (MARGIN * best)
    if step_s * (1 + cell.measure.min_samples) <= cell.measure.timeout_s:
        return None
    reason = (
        f"not tried: {1 + cell.measure.min_samples} steps of at least {step_s:.3g} s each, at {MARGIN:g} times this "
        f"device's best {best / 1e9:.3g} GFLOP/s in {cell.step.precision}, overrun timeout_s "
        f"{cell.measure.timeout_s:g}"
    )
    return _not_measured("timeout", reason)


def _read(calibration: Path) -> dict[str, Any]:
    return json.loads(calibration.read_text(encoding="utf-8"))


def _not_measured(status: Status, reason: str) -> Outcome:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return Outcome(
        status=status,
        reason=reason,
        result=None,
        peak_process_bytes=None,
        wall_s=0.0,
        started_at=now,
        ended_at=now,
    )


def barred_reason(calibration: dict[str, Any], precision: str, execution: str) -> str | None:
    """Says why nothing of this precision and execution may be measured; None where it may."""
    if calibration["status"] == BARRED:
        return f"the device is barred: {calibration['reason']}"
    for pair in calibration["barred"]:
        if (pair["precision"], pair["execution"]) == (precision, execution):
            return pair["reason"]
    return None
