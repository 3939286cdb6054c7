"""Statistics on samples whose truth is known."""

import numpy as np
import pytest
from scipy import stats

from workflow_scripts.lib.estimates import MIN_SAMPLES, estimate, spread


def test_an_estimate_of_nothing_is_missing_and_of_few_has_no_spread():
    assert estimate([]).median is None
    few = estimate([0.5] * (MIN_SAMPLES - 1))
    assert few.median == 0.5
    assert few.low is None
    assert few.std is None


def test_the_interval_covers_the_true_median_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = [e.low <= 1.0 <= e.high for e in (estimate(rng.lognormal(0.0, 0.1, 40)) for _ in range(300))]
    assert 0.90 <= np.mean(covered) <= 0.99


def test_the_interval_is_scipys():
    samples = np.random.default_rng(2).lognormal(size=30)
    expected = stats.bootstrap((samples,), np.median, n_resamples=2000, method="percentile", rng=0)
    made = estimate(samples)
    assert (made.low, made.high) == pytest.approx(tuple(expected.confidence_interval), rel=1e-12)


def test_an_estimate_is_the_same_when_it_is_made_again():
    samples = np.random.default_rng(1).normal(1, 0.1, 30)
    assert estimate(samples) == estimate(samples)


def test_spread_of_processes():
    assert spread([1.0]) == (None, None)
    widest, cv = spread([1.0, 1.1, 1.05])
    assert widest == pytest.approx(0.1)
    assert cv == pytest.approx(np.std([1.0, 1.1, 1.05], ddof=1) / 1.05)
