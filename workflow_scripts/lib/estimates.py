"""Statistics of raw samples, derived once for every table and claim."""

import dataclasses
from collections.abc import Sequence

import numpy as np

MIN_SAMPLES = 5
"""Fewer samples than this say nothing of their spread."""

CONFIDENCE = 0.95
RESAMPLES = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """A median with its 95 % bootstrap interval; the interval and spreads are None below `MIN_SAMPLES`."""

    n: int
    median: float | None
    low: float | None
    high: float | None
    iqr: float | None
    mean: float | None
    std: float | None


def estimate(samples: Sequence[float]) -> Estimate:
    """Estimates the median of samples of one process.

    The interval is the percentile bootstrap's (Efron 1979) from a fixed seed, so that a table is the same when it is
    made again. # Assume: samples are exchangeable; drift and two modes are the audit's to find.
    """
    values = np.asarray(samples, dtype=np.float64)
    n = len(values)
    if n == 0:
        return Estimate(n=0, median=None, low=None, high=None, iqr=None, mean=None, std=None)
    median = float(np.median(values))
    mean = float(values.mean())
    if n < MIN_SAMPLES:
        return Estimate(n=n, median=median, low=None, high=None, iqr=None, mean=mean, std=None)
    drawn = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
    low, high = np.quantile(np.median(values[drawn], axis=1), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    quarter, three_quarters = np.quantile(values, [0.25, 0.75])
    return Estimate(
        n=n,
        median=median,
        low=float(low),
        high=float(high),
        iqr=float(three_quarters - quarter),
        mean=mean,
        std=float(values.std(ddof=1)),
    )


def spread(medians: Sequence[float]) -> tuple[float | None, float | None]:
    """Largest over smallest minus 1, and coefficient of variation, of medians of several processes."""
    values = np.asarray(medians, dtype=np.float64)
    if len(values) < 2:
        return None, None
    return float(values.max() / values.min() - 1), float(values.std(ddof=1) / values.mean())
