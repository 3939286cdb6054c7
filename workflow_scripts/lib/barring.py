"""What may not be measured: calibration's verdict on a device and on its pairs of precision and execution.

A leaf without torch, so that the job that would measure can ask before it starts anything.
"""

import datetime
import json
from pathlib import Path
from typing import Any

from workflow_scripts.lib.outcome import Outcome

BARRED = "barred"


def barred_outcome(calibration: Path, step: dict[str, Any]) -> Outcome | None:
    """Gives the outcome of a measurement that must not be made; None where it may.

    Args:
        calibration: the device's calibration.json.
        step: the `StepSpec` as JSON; its `precision` and `execution` count.
    """
    reason = barred_reason(json.loads(calibration.read_text(encoding="utf-8")), step["precision"], step["execution"])
    if reason is None:
        return None
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return Outcome(
        status=BARRED,
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
