"""Times of things that were visited in rounds."""

import numpy as np
import pytest

from benchmarks.rounds import steady_times

TIMES = np.array([0.01, 0.3, 2.0, 0.07])


def test_what_a_whole_round_is_slower_by_is_taken_out():
    rounds = np.array([1.0, 1.3, 0.9])
    assert steady_times(TIMES[:, None] * rounds) == pytest.approx(TIMES)


def test_a_visit_that_is_slow_alone_is_not_the_rounds():
    visits = np.tile(TIMES[:, None], 3)
    visits[0, 1] *= 5
    assert steady_times(visits) == pytest.approx(TIMES, rel=1e-6)


def test_one_round_and_missing_visits_have_plain_medians():
    assert steady_times([[0.5], [2.0]]) == [0.5, 2.0]
    assert steady_times([[1.0, 2.0, 1.0], [3.0, 6.0, 3.0], [5.0, 7.0]]) == pytest.approx([1.0, 3.0, 6.0])
    assert steady_times([]) == []


def test_rounds_that_drift_bias_medians_but_not_ratios():
    random = np.random.default_rng(0)
    visits = TIMES[:, None] * np.array([0.8, 1.0, 1.4, 1.1, 0.7]) * np.exp(0.01 * random.standard_normal((4, 5)))
    found = np.array(steady_times(visits))
    assert found / TIMES == pytest.approx((found / TIMES).mean(), rel=0.02)
