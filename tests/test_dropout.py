"""Tests of dropout with bits drawn apart; on CUDA it is what the compiler gets, here it is called by name."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from workflow_scripts.lib import dropout
from workflow_scripts.lib.dropout import Dropout, drop, random_bits

N = 200_003  # not a multiple of four


@pytest.fixture
def compiled_anywhere(monkeypatch):
    """Makes compiled code on a CPU draw its bits apart, as on CUDA."""
    monkeypatch.setattr(dropout, "draws_apart", lambda device: torch.compiler.is_compiling())


@pytest.mark.parametrize("p", [0.1, 0.2, 0.5, 0.9])
def test_as_many_are_dropped_as_asked_and_the_mean_stays(p):
    torch.manual_seed(0)
    kept = drop(torch.ones(N), p)
    deviation = (p * (1 - p) / N) ** 0.5
    assert (kept == 0).double().mean().item() == pytest.approx(p, abs=5 * deviation)
    assert kept.double().mean().item() == pytest.approx(1, abs=5 * deviation / (1 - p))
    assert kept.unique().tolist() == pytest.approx([0, 1 / (1 - p)], rel=1e-4)


def test_neighbours_are_dropped_independently():
    torch.manual_seed(0)
    dropped = (drop(torch.ones(N), 0.2) == 0).double()
    for distance in (1, 2, 3, 4):  # four elements come of one number
        both = (dropped[distance:] * dropped[:-distance]).mean().item()
        assert both == pytest.approx(0.04, abs=5 * (0.04 * 0.96 / N) ** 0.5)


def test_all_or_nothing():
    assert drop(torch.ones(9), 1.0).eq(0).all()
    assert Dropout(0.0)(torch.ones(9)).eq(1).all()
    assert Dropout(0.5).eval()(torch.ones(9)).eq(1).all()


def test_bits_are_of_the_shape_and_the_seed():
    x = torch.empty(3, 5, 7)
    torch.manual_seed(1)
    first, second = random_bits(x), random_bits(x)
    torch.manual_seed(1)
    assert first.shape == x.shape
    assert first.dtype == torch.int16
    assert torch.equal(first, random_bits(x))
    assert not torch.equal(first, second)


def test_compiled_draws_differ_and_checkpointing_repeats_its_own(compiled_anywhere):
    layer = Dropout(0.25)

    def twice(x):
        y = checkpoint(lambda t: layer(t).sin(), x, use_reentrant=False)
        return y, layer(y)

    x = torch.ones(64, 99, requires_grad=True)
    y, z = torch.compile(twice, fullgraph=True, dynamic=False)(x)
    z.sum().backward()
    assert (y == 0).float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert (z == 0).float().mean().item() == pytest.approx(1 - 0.75**2, abs=0.03)
    assert torch.equal(x.grad == 0, z == 0)
