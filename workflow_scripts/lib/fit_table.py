"""How the prediction of what fits did, cell by cell, as rows of a table."""

from collections.abc import Iterable
from typing import Any

FIT_COLUMNS = (
    "device cell decision judgement limit_bytes capped needed_bytes status peak_allocated_bytes memory_method record"
).split()
FITS, TRIED, LEFT_OUT = "fits", "tried beyond", "left out"
RIGHT, WRONG_FIT, WRONG_SKIP, OPEN = "right", "wrongly said to fit", "wrongly said not to fit", "not judged"


def fit_rows(cells: Iterable[dict[str, Any]], devices: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each cell of the devices whose memory is known.

    Args:
        cells: rows of cells.csv; what is missing is None.
        devices: by id `limit_bytes`, `capped` (whether the config, not the device, sets the limit), and `beyond`: for
            each cell that was predicted not to fit its `needed_bytes` and whether it was `tried`.
    """
    rows = []
    for cell in cells:
        device = devices.get(cell["device"])
        if device is None or device["limit_bytes"] is None:
            continue
        verdict = device["beyond"].get(cell["cell"])
        decision = FITS if verdict is None else TRIED if verdict["tried"] else LEFT_OUT
        rows.append(
            {
                **{name: cell[name] for name in ("device", "cell", "status", "memory_method", "record")},
                "peak_allocated_bytes": cell["peak_allocated_bytes"],
                "decision": decision,
                "judgement": judge(decision, cell["status"], cell["peak_allocated_bytes"], **_limit(device)),
                **_limit(device),
                "needed_bytes": cell["predicted_peak_bytes"] if verdict is None else verdict["needed_bytes"],
            }
        )
    return rows


def judge(decision: str, status: str, measured_bytes: float | None, limit_bytes: int, capped: bool) -> str:
    """Says whether a decision was right, by the measured peak where there is one, else by how the cell ended.

    A cell that ran on a device with a stated cap, and whose peak nobody measured, says nothing of that cap. Nor does
    one that was left out, or failed for another reason.
    """
    if decision == LEFT_OUT:
        return OPEN
    if status == "oom":
        fitted = False
    elif status != "ok" or (capped and measured_bytes is None):
        return OPEN
    else:
        fitted = measured_bytes is None or measured_bytes <= limit_bytes
    if fitted == (decision == FITS):
        return RIGHT
    return WRONG_SKIP if fitted else WRONG_FIT


def _limit(device: dict[str, Any]) -> dict[str, Any]:
    return {"limit_bytes": device["limit_bytes"], "capped": device["capped"]}
