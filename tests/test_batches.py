"""Which tokens each step sees."""

import numpy as np
import pytest
import torch

from workflow_scripts.lib.batches import Batches, draw_offsets, offsets_sha256

TOKENS = np.arange(50, dtype=np.uint8)


def gathered(tokens: np.ndarray, offsets: np.ndarray, sequence_length: int, accumulation: int, step: int):
    batches = Batches(tokens, offsets, sequence_length, accumulation, torch.device("cpu"))
    return batches.gather(torch.tensor([step]))


def test_offsets_follow_from_the_seed_alone():
    first, again, other = (draw_offsets(1000, 16, 4, 10, seed) for seed in (1, 1, 2))
    assert offsets_sha256(first) == offsets_sha256(again) != offsets_sha256(other)
    assert offsets_sha256(first) == "a5a9d561a846283dde4e90308b9a58397b18926a3fb28f012caffaa6641c1432"


def test_a_longer_run_begins_with_the_steps_of_a_shorter_one():
    np.testing.assert_array_equal(draw_offsets(1000, 16, 4, 30, 1)[:10], draw_offsets(1000, 16, 4, 10, 1))


def test_every_place_that_holds_a_window_is_equally_likely():
    drawn = draw_offsets(n_tokens=20, sequence_length=13, batch_size=7, n_steps=10_000, seed=3)
    counts = np.bincount(drawn.ravel())
    assert len(counts) == 7  # windows of 14 tokens start at 0 … 6
    expected = drawn.size / 7
    assert ((counts - expected) ** 2 / expected).sum() < 22.5  # chi-squared, 6 degrees of freedom, p = 0.001


def test_a_text_of_exactly_one_window_is_enough_and_a_shorter_one_is_refused():
    assert not draw_offsets(17, 16, 4, 2, 1).any()
    with pytest.raises(ValueError, match="16 tokens: sequence_length 16 needs at least 17"):
        draw_offsets(16, 16, 4, 2, 1)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_targets_are_the_next_tokens_in_every_width(dtype):
    offsets = np.array([[0, 1], [30, 33]])
    inputs, targets = gathered(TOKENS.astype(dtype), offsets, 16, 1, step=1)
    assert inputs.dtype == targets.dtype == torch.int64
    assert inputs[0, :, 0].tolist() == [30, 33]
    assert targets[0, 1].tolist() == list(range(34, 50))  # the last token of the text is reached
    torch.testing.assert_close(targets, inputs + 1)


def test_ids_above_32767_survive():
    inputs, _ = gathered(np.full(20, 50_256, dtype=np.uint16), np.array([[0]]), 16, 1, step=0)
    assert inputs.unique().tolist() == [50_256]


def test_micro_batches_hold_the_same_windows_in_the_same_order():
    offsets = draw_offsets(50, 16, 8, 3, seed=1)
    whole, _ = gathered(TOKENS, offsets, 16, 1, step=2)
    parts, _ = gathered(TOKENS, offsets, 16, 4, step=2)
    assert parts.shape == (4, 2, 16)
    assert parts.is_contiguous()
    torch.testing.assert_close(parts.flatten(0, 1), whole[0])


def test_a_read_only_map_of_a_file_can_be_used(tmp_path):
    (tmp_path / "tokens.bin").write_bytes(TOKENS.astype("<u2").tobytes())
    tokens = np.memmap(tmp_path / "tokens.bin", "<u2", mode="r")
    inputs, _ = gathered(tokens, np.array([[5]]), 16, 1, step=0)
    assert inputs.ravel().tolist() == list(range(5, 21))
