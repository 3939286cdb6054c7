"""Reading a run's evaluations between the places where they were made, on straight lines, and nowhere outside them."""

import math

import numpy as np
import pandas as pd


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
