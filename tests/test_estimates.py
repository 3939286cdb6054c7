"""Statistics and the cost model, on samples whose truth is known."""

import numpy as np
import pytest

from workflow_scripts.lib.cost_model import MIN_CELLS, features, fit
from workflow_scripts.lib.estimates import MIN_SAMPLES, estimate, spread
from workflow_scripts.lib.specs import ModelShape


def shape(n_layer=4, n_embd=128, sequence_length=64):
    return ModelShape(
        architecture="gpt2",
        n_layer=n_layer,
        n_head=4,
        n_embd=n_embd,
        n_inner=4 * n_embd,
        vocab_size=80,
        sequence_length=sequence_length,
        bias=False,
    )


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


def test_an_estimate_is_the_same_when_it_is_made_again():
    samples = np.random.default_rng(1).normal(1, 0.1, 30)
    assert estimate(samples) == estimate(samples)


def test_spread_of_processes():
    assert spread([1.0]) == (None, None)
    widest, cv = spread([1.0, 1.1, 1.05])
    assert widest == pytest.approx(0.1)
    assert cv == pytest.approx(np.std([1.0, 1.1, 1.05], ddof=1) / 1.05)


def test_the_cost_model_recovers_the_costs_that_made_the_times():
    costs = np.array([2e-3, 5e-4, 1e-9, 1e-11])
    work = [(shape(n, d, t), b) for n in (1, 8) for d in (64, 512) for t in (64, 256) for b in (2, 32)]
    times = [float(features(*cell) @ costs) for cell in work]
    model, left_out = fit(work, times)
    assert np.allclose(left_out, times, rtol=1e-6)
    assert model.leave_one_out_error < 1e-6
    assert model.step_time_s(shape(3, 96, 128), 16) == pytest.approx(features(shape(3, 96, 128), 16) @ costs)


def test_too_few_cells_predict_nothing():
    work = [(shape(n), 8) for n in range(1, MIN_CELLS)]
    assert fit(work, [0.1] * len(work)) is None
