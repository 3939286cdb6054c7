"""What a treatment changes of a step is read back from what the step does."""

import dataclasses
import gc

import numpy as np
import pytest
import torch

from tests.tiny_run import ADAMW, CPU, SHAPE, STEP
from workflow_scripts.lib.step import TrainStep

TOKENS = np.arange(200, dtype=np.uint8) % SHAPE.vocab_size


def observed(step=STEP, **model):
    shape = dataclasses.replace(SHAPE, **model)
    return TrainStep.build(shape, step, ADAMW, CPU, tokens=TOKENS, n_steps=2, seed=0).observe_forward()


@pytest.mark.parametrize(
    ("key", "value"), [("n_layer", 3), ("n_embd", 64), ("n_head", 4), ("sequence_length", 8), ("dropout", 0.25)]
)
def test_shape_context_and_dropout_are_read_back(key, value):
    assert (observed()[key], observed(**{key: value})[key]) == (getattr(SHAPE, key), value)


def test_checkpointing_is_seen_by_what_a_block_keeps():
    assert observed()["checkpointing"] is False
    assert observed(dataclasses.replace(STEP, checkpointing=True))["checkpointing"] is True


def test_observing_keeps_nothing_alive():
    built = TrainStep.build(SHAPE, STEP, ADAMW, CPU, tokens=TOKENS, n_steps=2, seed=0)
    built.observe_forward()
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(each, torch.Tensor) for each in gc.get_objects())
        built.observe_forward()
        gc.collect()
        assert sum(isinstance(each, torch.Tensor) for each in gc.get_objects()) == before
    finally:
        gc.enable()
