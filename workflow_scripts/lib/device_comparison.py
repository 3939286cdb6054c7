"""Two devices at the same work: how much faster one is, where that comes from, and what it costs in time and energy.

The ratio of throughputs is, exactly, the ratio of the two measured ceilings times the ratio of the shares of them that
the devices reach; what bounds the step on each says why the shares differ.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from workflow_scripts.lib import comparisons
from workflow_scripts.lib.comparisons import AXES, THRESHOLDS, Estimate
from workflow_scripts.lib.loss_history import first_at
from workflow_scripts.lib.quantities import is_missing, listing

COLUMNS = (
    "name device_a device_b execution_a execution_b throughput_a_tokens_per_s throughput_b_tokens_per_s ratio "
    "ratio_low ratio_high verdict ceiling_ratio share_a share_b bound_a bound_b bound_basis target_loss "
    "time_to_loss_a_s time_to_loss_low_a_s time_to_loss_high_a_s "
    "time_to_loss_b_s time_to_loss_low_b_s time_to_loss_high_b_s first_step_a_s first_step_b_s "
    "energy_per_token_a_j energy_per_token_b_j cost_per_million_tokens_a cost_per_million_tokens_b currency "
    "not_compared records"
).split()
SAME_WORK = ("batch_size", "sequence_length", "precision")
MILLION = 1e6

Bound = Callable[[pd.Series], tuple[str | None, str]]


def compare_devices(
    *, runs: pd.DataFrame, curves: pd.DataFrame, ceilings: pd.DataFrame, bound_of: Bound,
    prices: Mapping[str, float], currency: str,
) -> list[dict[str, Any]]:  # fmt: skip
    """Gives a row for each model and pair of devices that trained it, the faster device first.

    Args:
        runs: rows of runs.csv; those of the baseline are compared.
        curves: rows of curves.csv, for the time to a loss.
        ceilings: rows of ceilings.csv.
        bound_of: gives for a row of `runs` what bounds its step, and on what that statement rests.
        prices: of an hour of a device, by device.
        currency: of the prices.
    """
    asked = runs[runs.treatment == "baseline"] if len(runs) else runs
    rows = []
    for name, group in asked.groupby("name", sort=False) if len(asked) else ():
        members = list(dict.fromkeys(group.device))
        for pair in itertools.combinations(members, 2):
            sides = [group[(group.device == device) & (group.status == "ok")] for device in pair]
            speeds = [comparisons.pool(side, "throughput_tokens_per_s") for side in sides]
            if None not in speeds and speeds[0].value < speeds[1].value:
                pair, sides, speeds = pair[::-1], sides[::-1], speeds[::-1]
            row = dict.fromkeys(COLUMNS) | {"name": name, "device_a": pair[0], "device_b": pair[1]}
            reasons = _reasons(group, pair, sides, speeds)
            if not reasons:
                reasons = _fill(row, sides, speeds, curves, ceilings, bound_of, prices, currency)
            row["not_compared"] = "; ".join(reasons) or None
            row["records"] = " ".join(str(record) for side in sides for record in side.record.dropna())
            rows.append(row)
    return rows


def _reasons(
    group: pd.DataFrame, pair: tuple[str, str], sides: list[pd.DataFrame], speeds: list[Estimate | None]
) -> list[str]:
    """Says why two devices cannot be compared at all; nothing if they can."""
    failed = []
    for device, speed in zip(pair, speeds, strict=True):
        if speed is None:
            ended = group[(group.device == device) & (group.status != "ok")].status
            failed.append(f"no throughput on {device}" + (f" ({listing(dict.fromkeys(ended))})" if len(ended) else ""))
    if failed:
        return failed
    both = pd.concat(sides)
    return [f"the runs differ in {AXES[axis]}" for axis in SAME_WORK if both[axis].nunique() > 1]


def _fill(
    row: dict[str, Any], sides: list[pd.DataFrame], speeds: list[Estimate], curves: pd.DataFrame,
    ceilings: pd.DataFrame, bound_of: Bound, prices: Mapping[str, float], currency: str,
) -> list[str]:  # fmt: skip
    """Fills in what can be compared, and returns what cannot be."""
    ratio = comparisons.ratio(*speeds)
    row |= {"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high}
    row["verdict"] = comparisons.verdict(ratio)
    lacking, best, bases = [], [], []
    for end, side, speed in zip("ab", sides, speeds, strict=True):
        device, first = row[f"device_{end}"], side.iloc[0]
        ceiling = ceiling_of(ceilings, device, first.precision)
        rate, joules = side.achieved_flop_per_s.median(), side.energy_per_step_j.astype(float).median()
        best.append(ceiling)
        row[f"execution_{end}"] = first.execution
        row[f"throughput_{end}_tokens_per_s"] = speed.value
        row[f"share_{end}"] = rate / ceiling if ceiling and not is_missing(rate) else None
        row[f"bound_{end}"], basis = bound_of(first)
        bases += [basis] if row[f"bound_{end}"] else []
        row[f"first_step_{end}_s"] = None if side.first_step_s.isna().all() else float(side.first_step_s.max())
        tokens_per_step = first.batch_size * first.sequence_length
        row[f"energy_per_token_{end}_j"] = None if is_missing(joules) else joules / tokens_per_step
        price = prices.get(device)
        row[f"cost_per_million_tokens_{end}"] = None if price is None else price / 3600 * MILLION / speed.value
        lacking += [] if ceiling else [f"no ceiling of {first.precision} products measured on {device}"]
        lacking += [f"no energy counted on {device}"] if is_missing(joules) else []
        lacking += [f"the price of {device} is not stated"] if price is None else []
    row["bound_basis"] = " and ".join(dict.fromkeys(bases)) or None
    row["ceiling_ratio"] = best[0] / best[1] if all(best) else None
    row["currency"] = currency if prices else None
    target = common_target([_histories(curves, side) for side in sides])
    row["target_loss"] = target
    if target is None:
        return [*lacking, "no validation loss on both"]
    for end, side in zip("ab", sides, strict=True):
        times = [first_at(history, "elapsed_s", target) for history in _histories(curves, side)]
        row |= {
            f"time_to_loss_{end}_s": float(np.median(times)),
            f"time_to_loss_low_{end}_s": min(times) if len(times) > 1 else None,
            f"time_to_loss_high_{end}_s": max(times) if len(times) > 1 else None,
        }
    return lacking


def ceiling_of(ceilings: pd.DataFrame, device: str, precision: str) -> float | None:
    """The rate of matrix products that was measured on a device in a precision, in FLOP/s."""
    if ceilings.empty:
        return None
    own = ceilings[(ceilings.device == device) & (ceilings.quantity == "matrix_product")]
    values = own[own.precision == precision].value.dropna()
    return float(values.iloc[0]) if len(values) else None


def _histories(curves: pd.DataFrame, side: pd.DataFrame) -> list[pd.DataFrame]:
    """The evaluations of each run of one side, in order."""
    if curves.empty:
        return []
    own = curves[(curves.device == side.device.iloc[0]) & curves.run.isin(side.run) & curves.val_loss.notna()]
    return [history.sort_values("step") for _, history in own.groupby("run", sort=True)]


def common_target(histories: list[list[pd.DataFrame]]) -> float | None:
    """The lowest validation loss that every run of every side reached at some evaluation; None if one has none."""
    if not all(histories):
        return None
    return max(float(history.val_loss.min()) for side in histories for history in side)


def bound_by_scaling(run: pd.Series, cells: pd.DataFrame, ceilings: pd.DataFrame) -> tuple[str | None, str]:
    """What bounds a run's step, where no model of its cost says so.

    Compute, if it reaches at least `THRESHOLDS["compute_share"]` of the device's ceiling. Else launch, if in the grid
    the model nearest in size takes less than `THRESHOLDS["flat"]` times as long for its largest batch as for its
    smallest, in proportion to the batch: the device then waits for its host. Else bandwidth.
    """
    ceiling = ceiling_of(ceilings, run.device, run.precision)
    if ceiling and run.achieved_flop_per_s / ceiling >= THRESHOLDS["compute_share"]:
        return "compute", "share of the ceiling"
    if cells.empty:
        return None, "not enough cells"
    alike = (cells.device == run.device) & (cells.precision == run.precision) & (cells.execution == run.execution)
    timed = cells[alike & (cells.status == "ok") & (cells["mode"] == "step") & cells.step_time_s.notna()]
    if timed.empty:
        return None, "not enough cells"
    nearest = timed.iloc[(np.log(timed.n_params / run.n_params)).abs().argmin()]
    own = timed[(timed.model == nearest.model) & (timed.sequence_length == nearest.sequence_length)]
    own = own.groupby("batch_size").step_time_s.median()
    if len(own) < 2:
        return None, "not enough cells"
    growth = math.log(own.iloc[-1] / own.iloc[0]) / math.log(own.index[-1] / own.index[0])
    return ("launch" if growth < THRESHOLDS["flat"] else "bandwidth"), "scaling with the batch"
