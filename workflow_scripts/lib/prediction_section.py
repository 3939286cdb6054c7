"""The report's part on predicted time: how far each way of expecting it was off, in sentences and in one table."""

from typing import Any

import pandas as pd

from workflow_scripts.lib.expectations import WAYS, expectations
from workflow_scripts.lib.page import Column, Table, table
from workflow_scripts.lib.quantities import listing, percent, plural

ERRORS = [
    Column(name="device", title="device", axis=True),
    Column(name="group", title="precision and execution"),
    Column(name="n_cells", title="cells", kind="count"),
    Column(name="datasheet", title=WAYS["datasheet"], kind="percent", measured=True),
    Column(name="ceiling", title=WAYS["ceiling"], kind="percent", measured=True),
    Column(name="uncorrected", title="sum over calibrated operators", kind="percent", measured=True),
    Column(name="from_3", title="corrected by 3 cells", kind="percent", measured=True),
    Column(name="from_8", title="by 8", kind="percent", measured=True),
    Column(name="left_out", title="by all others", kind="percent", measured=True),
    Column(name="fresh", title="by those of other models", kind="percent", measured=True),
    Column(name="repeat", title="cells measured again", kind="percent", measured=True),
    Column(name="within", title="inside the interval", kind="percent", measured=True),
]


def section(
    cells: pd.DataFrame, ceilings: pd.DataFrame, cost_model: dict[str, Any], devices: dict[str, str], study: str
) -> dict[str, Any] | None:
    """The errors of all ways and what bounds the cells; None where nothing was expected of any cell."""
    rows = expectations(cells, ceilings)
    if rows.empty:
        return None
    return {
        "sentences": [*_errors(rows, cost_model, devices), *_bounds(cells, devices)],
        "table": _table(rows, cost_model, study),
    }


def _errors(rows: pd.DataFrame, cost_model: dict[str, Any], devices: dict[str, str]) -> list[str]:
    """Each device's mean absolute error of each way, and how far a second measurement is off."""
    told = []
    for device, group in rows.groupby("device", sort=False):
        off = group.relative_error.abs().groupby(group.way).mean()
        ways = [f"{percent(off[way])} by {WAYS[way]}" for way in WAYS if way in off]
        lacking = "" if "datasheet" in off else " No datasheet here states this device's rate."
        told.append(
            f"On {devices.get(device, device)} the step time of {plural(group.cell.nunique(), 'cell')} was expected "
            f"with a mean absolute error of {listing(ways)}.{lacking}{_measured_again(cost_model, device)}"
        )
    return told


def _measured_again(cost_model: dict[str, Any], device: str) -> str:
    """The floor of every expectation: by how much cells differ that were measured twice."""
    groups = cost_model.get("devices", {}).get(device, {}).get("errors", {})
    repeats = {name: errors.get("repeat_error") for name, errors in groups.items()}
    off = [f"{percent(repeat)} ({name})" for name, repeat in repeats.items() if repeat is not None]
    return f" Measured again in other processes, cells differ from themselves by {listing(off)}." if off else ""


def _bounds(cells: pd.DataFrame, devices: dict[str, str]) -> list[str]:
    """A sentence for each device: how many of its cells are bound by what."""
    if "predicted_bound" not in cells:
        return []
    told = []
    known = cells[cells.predicted_bound.notna()]
    for device, group in known.groupby("device", sort=False):
        counts = group.predicted_bound.value_counts()
        words = [f"{bound} bounds {counts[bound]:,}" for bound in ("launch", "bandwidth", "compute") if bound in counts]
        told.append(f"Of {plural(len(group), 'cell')} on {devices.get(device, device)}, {listing(words)}.")
    return told


def _table(rows: pd.DataFrame, cost_model: dict[str, Any], study: str) -> Table:
    """One row for each device, precision and execution."""
    printed = []
    for (device, precision, execution), group in rows.groupby(["device", "precision", "execution"], sort=False):
        name = f"{precision}-{execution}"
        errors = cost_model.get("devices", {}).get(device, {}).get("errors", {}).get(name, {})
        off = group.relative_error.abs().groupby(group.way).mean()
        few = errors.get("error_from", {})
        printed.append(
            {
                "device": device, "group": name, "n_cells": group.cell.nunique(), "datasheet": off.get("datasheet"),
                "ceiling": off.get("ceiling"), "uncorrected": errors.get("uncorrected_error"), "from_3": few.get("3"),
                "from_8": few.get("8"), "left_out": errors.get("leave_one_out_error"),
                "fresh": errors.get("fresh_model_error"), "repeat": errors.get("repeat_error"),
                "within": errors.get("within_interval"),
            }
        )  # fmt: skip
    return table(pd.DataFrame(printed), ERRORS, study)
