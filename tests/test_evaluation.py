"""Validation: the same windows for every run, whatever its batch or seed; the loss of the right model."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests import tiny_run
from workflow_scripts.lib.evaluation import choose_windows, validation_loss
from workflow_scripts.lib.model import build_decoder

TOKENS = np.random.default_rng(0).integers(tiny_run.SHAPE.vocab_size, size=500).astype(np.uint8)


@given(n_tokens=st.integers(2, 300), n_windows=st.integers(1, 300), length=st.integers(1, 299))
def test_windows_are_evenly_spaced_from_the_start_to_the_end(n_tokens, n_windows, length):
    tokens = np.arange(n_tokens) % 251
    if n_windows > n_tokens - length:
        with pytest.raises(ValueError, match="lower eval_windows"):
            choose_windows(tokens, n_windows, length)
        return
    windows = choose_windows(tokens, n_windows, length)
    gaps = np.diff(windows.starts)
    assert windows.starts[0] == 0
    assert windows.tokens.shape == (n_windows, length + 1)
    assert windows.n_tokens == n_windows * length
    if n_windows > 1:
        assert windows.starts[-1] + length + 1 == n_tokens
        assert gaps.min() >= 1
        assert gaps.max() - gaps.min() <= 1
    assert all((row == tokens[s : s + length + 1]).all() for s, row in zip(windows.starts, windows.tokens, strict=True))


def test_the_digest_tells_windows_and_texts_apart():
    digests = {
        choose_windows(TOKENS, 8, 16).sha256,
        choose_windows(TOKENS, 9, 16).sha256,
        choose_windows(TOKENS, 8, 15).sha256,
        choose_windows(TOKENS[::-1], 8, 16).sha256,
    }
    assert len(digests) == 4
    assert choose_windows(TOKENS.astype(np.uint32), 8, 16).sha256 in digests


def test_chunks_do_not_change_the_loss_and_it_is_the_mean_over_all_tokens():
    decoder = build_decoder(tiny_run.SHAPE, "cpu", seed=3)
    windows = choose_windows(TOKENS, 7, 16)
    rows = torch.from_numpy(windows.tokens)
    with torch.no_grad():
        logits = decoder(rows[:, :-1]).double()
    by_hand = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item()
    for chunk in (1, 3, 7, 100):
        assert validation_loss(decoder, windows, device="cpu", chunk=chunk) == pytest.approx(by_hand, abs=1e-6)


def test_dropout_is_off_and_mode_and_random_state_are_left_alone():
    decoder = build_decoder(dataclasses.replace(tiny_run.SHAPE, dropout=0.5), "cpu", seed=3)
    windows = choose_windows(TOKENS, 4, 16)
    decoder.train()
    state = torch.get_rng_state()
    losses = {validation_loss(decoder, windows, device="cpu", chunk=2) for _ in range(3)}
    assert len(losses) == 1
    assert decoder.training
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in decoder.parameters())


def test_a_broken_model_gives_nan_instead_of_an_error():
    decoder = build_decoder(tiny_run.SHAPE, "cpu", seed=3)
    torch.nn.init.constant_(decoder.norm.weight, math.nan)
    assert math.isnan(validation_loss(decoder, choose_windows(TOKENS, 4, 16), device="cpu", chunk=2))
