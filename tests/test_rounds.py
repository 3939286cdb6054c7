"""Times of things that were visited in rounds."""

import numpy as np
import pytest

from benchmarks.rounds import steady_times

TIMES = np.array([0.01, 0.3, 2.0, 0.07])


def test_what_a_whole_round_is_slower_by_is_taken_out():
    noise = np.array([[1.0, 1.1, 0.9], [1.1, 0.9, 1.0], [0.9, 1.0, 1.1], [1.0, 1.0, 1.0]])
    calm, uneven = (np.array(steady_times(TIMES[:, None] * noise * rounds)) for rounds in ([1, 1, 1], [1.0, 1.5, 0.7]))
    assert uneven == pytest.approx(calm)
    assert np.median(TIMES[:, None] * noise * [1.0, 1.5, 0.7], axis=1) != pytest.approx(calm, rel=0.05)


def test_a_visit_that_is_slow_alone_is_not_the_rounds():
    rounds = np.array([1.0, 2.0, 4.0])
    visits = TIMES[:, None] * rounds
    visits[0, 0] *= 8
    assert np.median(visits[0]) == pytest.approx(4 * TIMES[0])  # which would be twice too slow beside the others
    assert steady_times(visits) == pytest.approx(2 * TIMES)


def test_one_round_and_missing_visits_have_plain_medians():
    assert steady_times([[0.5], [2.0]]) == [0.5, 2.0]
    assert steady_times([[1.0, 2.0, 1.0], [3.0, 6.0, 3.0], [5.0, 7.0]]) == pytest.approx([1.0, 3.0, 6.0])
    assert steady_times([]) == []
