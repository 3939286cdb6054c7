"""The report's part on memory: where in a step it is largest, what was predicted of it, what was left out for it."""

from typing import Any

import pandas as pd

from workflow_scripts.lib import csv_tables
from workflow_scripts.lib.fit_table import LEFT_OUT, OPEN, RIGHT, TRIED, WRONG_FIT, WRONG_SKIP
from workflow_scripts.lib.page import Column, table
from workflow_scripts.lib.quantities import percent, plural, quantity

STEPS = [
    Column(name="device", title="device", axis=True),
    Column(name="cell", title="cell"),
    Column(name="peak_allocated_bytes", title="peak allocated", kind="bytes", measured=True),
    Column(name="predicted_peak_bytes", title="predicted", kind="bytes"),
    Column(name="forward_peak_bytes", title="in forward", kind="bytes", measured=True),
    Column(name="predicted_forward_bytes", title="predicted", kind="bytes"),
    Column(name="backward_peak_bytes", title="in backward", kind="bytes", measured=True),
    Column(name="predicted_backward_bytes", title="predicted", kind="bytes"),
    Column(name="optimizer_peak_bytes", title="in the optimizer", kind="bytes", measured=True),
    Column(name="predicted_optimizer_bytes", title="predicted", kind="bytes"),
    Column(name="footprint_bytes", title="footprint", kind="bytes", measured=True),
    Column(name="peak_reserved_bytes", title="reserved", kind="bytes", measured=True),
    Column(name="process_device_bytes", title="of the process on the device", kind="bytes", measured=True),
    Column(name="device_used_bytes", title="used of the device", kind="bytes", measured=True),
    Column(name="record", title="from", kind="record"),
]
BEYOND = [
    Column(name="device", title="device", axis=True),
    Column(name="cell", title="cell"),
    Column(name="needed_bytes", title="predicted to need", kind="bytes"),
    Column(name="limit_bytes", title="of", kind="bytes"),
    Column(name="decision", title="decision"),
    Column(name="status", title="what came of it"),
    Column(name="peak_allocated_bytes", title="peak allocated", kind="bytes", measured=True),
    Column(name="judgement", title="the prediction was"),
    Column(name="record", title="from", kind="record"),
]


def section(memory: pd.DataFrame, fits: pd.DataFrame, study: str) -> dict[str, Any] | None:
    """The steps' peaks beside the predicted ones, and the cells beyond the border; None if there is neither."""
    beyond = fits[fits.decision.isin([TRIED, LEFT_OUT])]
    if memory.empty and beyond.empty:
        return None
    return {
        "steps": table(memory, STEPS, study) if len(memory) else None,
        "errors": errors(memory),
        "beyond": table(beyond, BEYOND, study) if len(beyond) else None,
        "decided": decided(fits),
    }


def errors(memory: pd.DataFrame) -> list[str]:
    """A sentence for each device: how far the predicted peak was from the measured one."""
    measured = csv_tables.with_columns(memory, ["peak_allocated_bytes", "predicted_peak_bytes"])
    measured = measured[measured.peak_allocated_bytes.notna()]
    sentences = []
    for device, rows in measured.groupby("device", sort=False):
        error = (rows.predicted_peak_bytes / rows.peak_allocated_bytes - 1).abs()
        sentences.append(
            f"On {device} the predicted peak of {plural(len(rows), 'step')} was off by {percent(error.median())} in "
            f"the median and {percent(error.max())} at worst."
        )
    return sentences


def decided(fits: pd.DataFrame) -> list[str]:
    """A sentence for each device: how many cells were left out, and how the decisions did."""
    sentences = []
    for device, rows in fits.groupby("device", sort=False):
        decision, judgement = rows.decision.value_counts(), rows.judgement.value_counts()
        whose = "as the config says" if rows.capped.iloc[0] else "of this device"
        told = (
            f"For {quantity(float(rows.limit_bytes.iloc[0]), 'bytes')} {whose}, of {plural(len(rows), 'cell')} on "
            f"{device} {plural(decision.get(LEFT_OUT, 0), 'was', 'were')} left out as too large and "
            f"{plural(decision.get(TRIED, 0), 'was', 'were')} tried all the same beyond the border."
        )
        judged = len(rows) - int(judgement.get(OPEN, 0))
        if judged:
            told += (
                f" What happened can judge {plural(judged, 'decision')}, of which "
                f"{plural(judgement.get(RIGHT, 0), 'was', 'were')} right; "
                f"{plural(judgement.get(WRONG_FIT, 0), 'cell was', 'cells were')} wrongly said to fit and "
                f"{judgement.get(WRONG_SKIP, 0):,} wrongly said not to."
            )
        sentences.append(told)
    return sentences
