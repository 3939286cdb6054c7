"""Times of things that were visited in rounds, on a machine whose own speed changes from round to round."""

from collections.abc import Sequence

import numpy as np


def steady_times(visits: Sequence[Sequence[float]]) -> list[float]:
    """Gives one time for each thing: the median of its visits, each divided by how slow its round was for all of them.

    Rounds are blocks: the logarithm of a visit is the thing's plus the round's. A round's is the median over things,
    counted from the middle round. Things that were not visited in every round have the plain median.

    Args:
        visits: for each thing its times in s, at least one, in the order of the rounds.
    """
    n_rounds = max((len(times) for times in visits), default=0)
    whole = np.log([times for times in visits if len(times) == n_rounds])
    factors = np.ones(n_rounds)
    if n_rounds > 1:
        slowness = np.median(whole - whole.mean(axis=1, keepdims=True), axis=0)
        factors = np.exp(slowness - np.median(slowness))
    return [float(np.median(times / factors if len(times) == n_rounds else times)) for times in map(np.array, visits)]
