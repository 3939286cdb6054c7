"""Optimizers over learning rates: the best rate of each by validation loss at equal tokens, and at equal seconds."""

import math
from typing import Any

import numpy as np
import pandas as pd

from workflow_scripts.lib.loss_history import loss_at
from workflow_scripts.lib.quantities import is_missing

COLUMNS = (
    "device name optimizer treatment learning_rate n_rates n_seeds n_diverged tokens val_loss val_loss_low "
    "val_loss_high seconds val_loss_at_seconds val_loss_at_seconds_low val_loss_at_seconds_high best at_edge"
).split()
WORK = (
    "batch_size sequence_length precision execution accumulation attention checkpointing dropout n_layer n_head n_embd"
).split()


def sweep_optimizers(runs: pd.DataFrame, curves: pd.DataFrame) -> list[dict[str, Any]]:
    """Gives a row for each optimizer and learning rate of each model and device, if at least two optimizers were
    tried, and one of them at several rates.

    Losses are compared at the tokens that every run of the model on the device has an evaluation for, and at the
    seconds of training after which the first of them had these tokens. `at_edge` is `lowest` or `highest` where the
    best rate of an optimizer is the outermost that was tried, `only` where there was but one.
    """
    rows: list[dict[str, Any]] = []
    for (device, name), group in runs.groupby(["device", "name"], sort=False) if len(runs) else ():
        group = _same_work(group)
        if group.optimizer.nunique() < 2 or group.groupby("optimizer").learning_rate.nunique().max() < 2:
            continue
        group = group.assign(kind=[_kind(row) for row in group.to_dict("records")])
        own = curves[(curves.device == device) & curves.run.isin(group.run) & curves.val_loss.notna()]
        ended = group[group.status == "ok"]
        if ended.empty or own.empty:
            continue
        reached = own[own.run.isin(ended.run)].groupby("run")
        tokens, seconds = float(reached.tokens.max().min()), float(reached.elapsed_s.max().min())
        for kind, tried in group.groupby("kind", sort=False):
            rows += _optimizer(device, name, kind, tried, own, tokens, seconds)
    return rows


def _same_work(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that differ from the baseline in nothing but optimizer, rate and seed."""
    baseline = runs[runs.treatment == "baseline"]
    if baseline.empty:
        return baseline
    return runs[(runs[WORK].astype(str) == baseline.iloc[0][WORK].astype(str)).all(axis=1)]


def _kind(run: dict[str, Any]) -> str:
    """Names an optimizer with what sets it apart: sgd, sgd with momentum."""
    momentum = run.get("momentum")
    plain = run["optimizer"] != "sgd" or is_missing(momentum) or momentum == 0
    return run["optimizer"] if plain else f"{run['optimizer']} with momentum"


def _optimizer(
    device: str, name: str, kind: str, tried: pd.DataFrame, curves: pd.DataFrame, tokens: float, seconds: float
) -> list[dict[str, Any]]:
    rows = []
    for (rate, treatment), seeds in tried.groupby(["learning_rate", "treatment"], sort=True):
        histories = [curves[curves.run == run].sort_values("step") for run in seeds[seeds.status == "ok"].run]
        histories = [history for history in histories if len(history)]
        rows.append({
            "device": device, "name": name, "optimizer": kind, "treatment": treatment, "learning_rate": rate,
            "n_rates": tried.learning_rate.nunique(), "n_seeds": len(histories),
            "n_diverged": int((seeds.status == "diverged").sum()), "tokens": tokens, "seconds": seconds,
            **_spread("val_loss", [loss_at(history, "tokens", tokens) for history in histories]),
            **_spread("val_loss_at_seconds", [loss_at(history, "elapsed_s", seconds) for history in histories]),
            "best": False, "at_edge": None,
        })  # fmt: skip
    judged = [row for row in rows if row["val_loss"] is not None]
    if judged:
        best = min(judged, key=lambda row: row["val_loss"])
        rates = sorted(tried.learning_rate.unique())
        best["best"] = True
        best["at_edge"] = (
            "only" if len(rates) == 1
            else {rates[0]: "lowest", rates[-1]: "highest"}.get(best["learning_rate"], "inside")
        )  # fmt: skip
    return rows


def _spread(name: str, losses: list[float]) -> dict[str, float | None]:
    known = [loss for loss in losses if not math.isnan(loss)]
    middle = float(np.mean(known)) if known else None
    low, high = (min(known), max(known)) if len(known) > 1 else (None, None)
    return {name: middle, f"{name}_low": low, f"{name}_high": high}
