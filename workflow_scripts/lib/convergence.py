"""Where a training has converged, and whether it ended in a steady state, by a rule that is stated.

The validation loss is smoothed by the median of three neighbouring evaluations. A run has converged at the tokens from
which on this stays within a stated share of its last value; the evaluations before and after them are the interval. A
run whose loss ends above its lowest by more than that share has not converged: it is past its best.
Its state is steady if the last fifth of the run changed the loss by less than another stated share. The norm of the
gradient has settled when the running median of it stays within a share of the level of the last fifth.
"""

from typing import Any

import numpy as np
import pandas as pd

from workflow_scripts.lib.comparisons import THRESHOLDS

COLUMNS = (
    "device run name treatment seed n_evaluations first_val_loss final_val_loss lowest_val_loss lowest_tokens risen "
    "settled_tokens settled_low_tokens settled_high_tokens settled_s late_change steady grad_norm_level "
    "grad_settled_tokens grad_settled_step"
).split()
LAST = 0.8  # share of the tokens after which a run is in its last fifth
MIN_EVALUATIONS = 4
NORM_WINDOW = 0.05  # share of a run's rows that the running median of the gradient norm covers


def judge_convergence(curves: pd.DataFrame) -> list[dict[str, Any]]:
    """Gives a row for each run of curves.csv."""
    rows = []
    identity = ["device", "run", "name", "treatment", "seed"]
    for values, curve in curves.groupby(identity, sort=False) if len(curves) else ():
        curve = curve.sort_values("step")
        row = dict.fromkeys(COLUMNS) | dict(zip(identity, values, strict=True))
        rows.append(row | _loss(curve[curve.val_loss.notna()]) | _norm(curve[np.isfinite(curve.grad_norm)]))
    return rows


def _loss(evaluated: pd.DataFrame) -> dict[str, Any]:
    losses, tokens = evaluated.val_loss.to_numpy(float), evaluated.tokens.to_numpy(float)
    found: dict[str, Any] = {"n_evaluations": len(losses)}
    if not len(losses):
        return found
    found |= {"first_val_loss": losses[0], "final_val_loss": losses[-1]}
    if len(losses) < MIN_EVALUATIONS:
        return found
    smooth = evaluated.val_loss.rolling(3, center=True, min_periods=2).median().to_numpy(float)
    lowest = int(np.argmin(losses))
    found |= {"lowest_val_loss": losses[lowest], "lowest_tokens": tokens[lowest]}
    found["risen"] = losses[-1] / losses[lowest] - 1
    late = float(np.interp(LAST * tokens[-1], tokens, smooth))
    found |= {"late_change": late / smooth[-1] - 1, "steady": abs(late / smooth[-1] - 1) < THRESHOLDS["steady"]}
    band = THRESHOLDS["settled"]
    if found["risen"] > band:
        return found
    outside = np.flatnonzero(np.abs(smooth / smooth[-1] - 1) > band)
    if not len(outside):
        return found | {"settled_tokens": tokens[0], "settled_low_tokens": 0.0, "settled_high_tokens": tokens[0],
                        "settled_s": float(evaluated.elapsed_s.iloc[0])}  # fmt: skip
    before = outside[-1]
    edge = smooth[-1] * (1 + np.sign(smooth[before] - smooth[-1]) * band)
    share = (smooth[before] - edge) / (smooth[before] - smooth[before + 1])
    place = tokens[before] + share * (tokens[before + 1] - tokens[before])
    return found | {
        "settled_tokens": float(place),
        "settled_low_tokens": tokens[before],
        "settled_high_tokens": tokens[before + 1],
        "settled_s": float(np.interp(place, tokens, evaluated.elapsed_s.to_numpy(float))),
    }


def _norm(rows: pd.DataFrame) -> dict[str, Any]:
    if len(rows) < 10:
        return {}
    window = max(5, round(NORM_WINDOW * len(rows)))
    running = rows.grad_norm.rolling(window, center=True, min_periods=1).median().to_numpy(float)
    level = float(rows.grad_norm[rows.tokens >= LAST * rows.tokens.max()].median())
    outside = np.flatnonzero(np.abs(running / level - 1) > THRESHOLDS["settled_norm"])
    settled = (
        rows.iloc[outside[-1] + 1 if len(outside) else 0] if not len(outside) or outside[-1] + 1 < len(rows) else None
    )
    found: dict[str, Any] = {"grad_norm_level": level}
    return found if settled is None else found | {
        "grad_settled_tokens": float(settled.tokens), "grad_settled_step": int(settled.step),
    }  # fmt: skip


def order(convergence: pd.DataFrame, a: str, b: str, columns: tuple[str, str]) -> str:
    """Says whether all seeds of model `a` are below ("earlier") or above ("later") all of `b`, else "undecided".

    Args:
        convergence: rows of one device and treatment.
        a: a model.
        b: another.
        columns: where a seed's interval begins and ends; the same column twice where it has none.
    """
    low, high = columns
    first, second = (convergence[convergence["name"] == name].dropna(subset=[low, high]) for name in (a, b))
    if min(len(first), len(second)) < THRESHOLDS["seeds"]:
        return "undecided"
    if first[high].max() < second[low].min():
        return "earlier"
    return "later" if first[low].min() > second[high].max() else "undecided"
