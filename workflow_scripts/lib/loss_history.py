"""Reading a run's losses: between evaluations on straight lines, nowhere outside them; and how far they scatter."""

import math

import numpy as np
import pandas as pd

LEAST = 10  # differences of a scatter


def loss_at(history: pd.DataFrame, column: str, place: float) -> float:
    """The validation loss at a place of `column` (`tokens` or `elapsed_s`); NaN outside the evaluations.

    Args:
        history: evaluations of one run, in order.
        column: what the place is in.
        place: rounded as it came through a table, so that the last evaluation is inside.
    """
    if history.empty or math.isnan(place):
        return math.nan
    places = history[column].to_numpy(float)
    if not places[0] <= place <= places[-1] * (1 + 1e-9):
        return math.nan
    return float(np.interp(place, places, history.val_loss.to_numpy(float)))


def first_at(history: pd.DataFrame, column: str, target: float) -> float:
    """The place of `column` where the validation loss first was at `target` or below; NaN if it never was."""
    losses, places = history.val_loss.to_numpy(float), history[column].to_numpy(float)
    reached = np.flatnonzero(losses <= target)
    if not len(reached):
        return math.nan
    after = reached[0]
    if after == 0:
        return float(places[0])
    share = (losses[after - 1] - target) / (losses[after - 1] - losses[after])
    return float(places[after - 1] + share * (places[after] - places[after - 1]))


def step_noise(losses: np.ndarray) -> float | None:
    """How far training losses of neighbouring steps scatter, in nats per token, over the second half of a run.

    The standard deviation by the mean square of successive differences, which a slow fall hardly moves (von Neumann
    1941); None of fewer than ten differences.
    """
    late = losses[len(losses) // 2 :]
    differences = np.diff(late[np.isfinite(late)])
    return float(np.sqrt(np.mean(differences**2) / 2)) if len(differences) >= LEAST else None
