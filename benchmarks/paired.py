"""Statistics of two programs timed in turn: rounds are pairs, so what both meet (heat, neighbours) cancels."""

import dataclasses
import math
import statistics
from collections.abc import Sequence

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
MIN_ROUNDS = 3  # fewer leave the interval of a ratio unknown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """Geometric mean of the rounds' ratios, with its interval; `low` and `high` are None below `MIN_ROUNDS` rounds."""

    value: float
    low: float | None
    high: float | None
    n_rounds: int

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.value:.3f}× ({self.n_rounds} round{'s' * (self.n_rounds > 1)}: no interval)"
        return f"{self.value:.3f}× [{self.low:.3f}, {self.high:.3f}]"


def paired_ratio(theirs: Sequence[float], ours: Sequence[float]) -> Ratio:
    """Gives how many times faster ours is: theirs / ours of each round, in logarithms, with Student's t interval.

    Args:
        theirs: step time of each round, in s.
        ours: the same, measured in the same rounds.

    Raises:
        ValueError: the two do not pair, or there is nothing.
    """
    if len(theirs) != len(ours) or not theirs:
        raise ValueError(f"{len(theirs)} and {len(ours)} rounds: ratios need as many of one as of the other, and one")
    logs = [math.log(a / b) for a, b in zip(theirs, ours, strict=True)]
    centre = statistics.fmean(logs)
    if len(logs) < MIN_ROUNDS:
        return Ratio(value=math.exp(centre), low=None, high=None, n_rounds=len(logs))
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(logs) - 1)) * error
    return Ratio(value=math.exp(centre), low=math.exp(centre - half), high=math.exp(centre + half), n_rounds=len(logs))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spread:
    """Step times of one side over all rounds: the median of the rounds' medians, and how wide single steps vary.

    `cv` is the standard deviation over the mean, `iqr` the interquartile range over the median, both of the warm
    samples of a round and then the median over rounds; `between` is the largest over the smallest median, minus 1.
    """

    median_s: float
    mean_s: float
    cv: float
    iqr: float
    between: float


def spread_of(rounds: Sequence[Sequence[float]]) -> Spread:
    """Summarises the warm samples (s per step) of each round."""
    medians = [float(np.median(samples)) for samples in rounds]
    means = [float(np.mean(samples)) for samples in rounds]
    deviations = [float(np.std(samples)) / mean for samples, mean in zip(rounds, means, strict=True)]
    ranges = [float(np.subtract(*np.quantile(s, [0.75, 0.25]))) / m for s, m in zip(rounds, medians, strict=True)]
    return Spread(
        median_s=statistics.median(medians),
        mean_s=statistics.median(means),
        cv=statistics.median(deviations),
        iqr=statistics.median(ranges),
        between=max(medians) / min(medians) - 1,
    )
