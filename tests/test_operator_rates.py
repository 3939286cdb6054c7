"""What an operator costs between and beyond the sizes that a calibration measured."""

import dataclasses
import math

import pytest

from tests.test_cost_model import OVERHEAD_S, device
from workflow_scripts.lib.operator_work import elements


def test_a_rate_is_recovered_between_the_sizes_that_were_measured():
    rates = device()
    for dims in ((100, 48, 200), (1000, 256, 300), (3000, 500, 1500)):
        expected = 2 * math.prod(dims) / 1e11 + OVERHEAD_S
        assert rates.seconds("linear", "forward", dims) == pytest.approx(expected, rel=0.15)
    assert rates.seconds("gelu", "forward", (300, 700)) == pytest.approx(12 * 210e3 / 1e10 + OVERHEAD_S, rel=0.1)


def test_beyond_the_measured_sizes_the_last_rate_holds():
    rates = device()
    once, twice = (rates.seconds("residual", "forward", (n, 4096)) for n in (2**16, 2**17))
    assert twice == pytest.approx(2 * once, rel=1e-3)


def test_a_large_loss_costs_what_another_of_as_many_elements_does():
    """What no cache holds is dear, whatever its rows."""

    def dear(one):
        large = one.kind == "loss" and elements(one.kind, one.dims) >= 512 * 16384
        return dataclasses.replace(one, seconds=one.seconds * (4 if large else 1))

    plain = device()
    rates = dataclasses.replace(plain, operators=tuple(map(dear, plain.operators)))
    times = [rates.seconds("loss", "forward", dims) / plain.seconds("loss", "forward", dims)
             for dims in ((512, 16384), (2048, 4096), (512, 4096))]  # fmt: skip
    assert times[0] == pytest.approx(4, rel=0.1)
    assert times[1] > 2 > times[2]
