"""Optimizers, their groups and their learning rates."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from tests.tiny_run import ADAMW, SHAPE
from workflow_scripts.lib.model import build_decoder
from workflow_scripts.lib.optimizers import ScheduledOptimizer, fused_works
from workflow_scripts.lib.schedule import learning_rates

COSINE = dataclasses.replace(ADAMW, learning_rate=1e-3, min_learning_rate=1e-4, warmup_steps=100, decay_steps=2000)


def nanogpt_rate(step: int) -> float:
    """nanoGPT's formula for COSINE, written down once more, step by step."""
    if step < 100:
        return 1e-3 * (step + 1) / 101
    if step > 2000:
        return 1e-4
    return 1e-4 + 0.5 * (1 + math.cos(math.pi * (step - 100) / 1900)) * 9e-4


def scheduled(name: str, **changes) -> ScheduledOptimizer:
    decoder = build_decoder(SHAPE, "cpu", seed=1)
    optimizer = ScheduledOptimizer(decoder, dataclasses.replace(ADAMW, name=name, **changes), n_steps=10)
    for parameter in decoder.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    optimizer.decoder = decoder
    return optimizer


def test_cosine_with_warmup_is_nanogpts():
    np.testing.assert_allclose(learning_rates(COSINE, 2500), [nanogpt_rate(s) for s in range(2500)], rtol=1e-12)


def test_constant_stays_at_its_peak_after_the_warmup():
    rates = learning_rates(dataclasses.replace(COSINE, schedule="constant"), 300)
    assert rates[0] == pytest.approx(1e-3 / 101)
    assert set(rates[100:]) == {1e-3}


def test_a_decay_no_longer_than_the_warmup_divides_by_nothing():
    rates = learning_rates(dataclasses.replace(COSINE, warmup_steps=10, decay_steps=10), 20)
    assert np.isfinite(rates).all()
    assert rates[-1] == 1e-4


def test_only_matrices_decay():
    groups = scheduled("adamw", weight_decay=0.1).inner.param_groups
    decays = {parameter.ndim: group["weight_decay"] for group in groups for parameter in group["params"]}
    assert decays == {2: 0.1, 1: 0.0}


def test_muon_takes_the_blocks_matrices_and_adamw_every_other_parameter():
    optimizer = scheduled("muon", momentum=0.95)
    muon, adamw = optimizer.inner.parts
    names = {parameter: name for name, parameter in optimizer.decoder.named_parameters()}
    by_muon = {names[p] for group in muon.param_groups for p in group["params"]}
    by_adamw = {names[p] for group in adamw.param_groups for p in group["params"]}
    matrices = ("qkv.weight", "proj.weight", "up.weight", "down.weight")
    assert by_muon == {name for name in names.values() if name.endswith(matrices)}
    assert by_muon | by_adamw == set(names.values())
    assert not by_muon & by_adamw


@pytest.mark.parametrize("name", ["adamw", "sgd", "adafactor", "muon"])
def test_a_step_follows_the_rate_that_was_set(name):
    optimizer = scheduled(name, momentum=0.9, weight_decay=0.0)
    before = [parameter.detach().clone() for parameter in optimizer.decoder.parameters()]
    optimizer.set_rate(torch.tensor([3]), 3)
    optimizer.inner.step()
    moved = [(p.detach() - b).abs().max() for p, b in zip(optimizer.decoder.parameters(), before, strict=True)]
    assert min(moved) > 0
    assert optimizer.held_rates() == pytest.approx([optimizer.rates[3]], rel=1e-6)
    if name == "sgd":
        assert float(max(moved)) == pytest.approx(optimizer.rates[3] * 1e-3, rel=1e-3)


@pytest.mark.parametrize(("name", "momentum", "per_parameter"), [("adamw", 0.0, 8), ("sgd", 0.9, 4), ("sgd", 0.0, 0)])
def test_state_bytes_are_what_the_algorithm_needs(name, momentum, per_parameter):
    optimizer = scheduled(name, momentum=momentum)
    optimizer.inner.step()
    tensors = list(optimizer.decoder.parameters())
    counters = 4 * len(tensors) if name == "adamw" else 0
    assert optimizer.state_bytes() == per_parameter * sum(p.numel() for p in tensors) + counters


def test_adafactor_keeps_less_than_adamw():
    adafactor, adamw = scheduled("adafactor"), scheduled("adamw")
    for optimizer in (adafactor, adamw):
        optimizer.inner.step()
    assert adafactor.state_bytes() < adamw.state_bytes() / 4


def test_a_loaded_state_keeps_the_rate_on_the_device():
    first, second = scheduled("adamw"), scheduled("adamw")
    first.inner.step()
    second.load_state_dict(first.state_dict())
    second.set_rate(torch.tensor([5]), 5)
    assert {id(group["lr"]) for group in second.inner.param_groups} == {id(second.rate)}
    assert second.state_bytes() == first.state_bytes()


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_a_fused_update_divides_gradients_as_it_reads_them(name):
    divided, small = scheduled(name, momentum=0.9), scheduled(name, momentum=0.9)
    assert divided.divides
    divided.inner.grad_scale = torch.tensor(4.0)
    for parameter in small.decoder.parameters():
        parameter.grad /= 4.0
    for optimizer in (divided, small):
        optimizer.inner.step()
    torch.testing.assert_close(divided.decoder.state_dict(), small.decoder.state_dict(), rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(divided.state_tensors(), small.state_tensors(), rtol=1e-5, atol=1e-12)


def test_a_kernel_that_does_not_exist_is_not_claimed(monkeypatch):
    assert not fused_works("muon", torch.device("cpu"))

    def refuse(*args, **kwargs):
        raise RuntimeError("no fused kernel on this device")

    monkeypatch.setattr(torch.optim.AdamW, "step", refuse)
    assert not fused_works("adamw", torch.device("cpu"))
