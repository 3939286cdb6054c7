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


@pytest.mark.parametrize(
    ("precision", "sequence_length", "asked", "taken"),
    [("fp32", 16, "auto", "flash"), ("bf16", 16, "auto", "math"), ("bf16", 256, "auto", "flash"),
     ("bf16", 16, "flash", "flash")],
)  # fmt: skip
def test_short_attention_in_16_bits_is_plain_on_a_cpu_unless_another_is_asked_for(
    precision, sequence_length, asked, taken
):
    step = dataclasses.replace(STEP, precision=precision, attention=asked)
    tokens = np.arange(600, dtype=np.uint8) % SHAPE.vocab_size
    shape = dataclasses.replace(SHAPE, sequence_length=sequence_length)
    built = TrainStep.build(shape, step, ADAMW, CPU, tokens=tokens, n_steps=2, seed=0)
    assert built.observe_forward()["attention_backend"] == taken


def test_only_a_cpu_and_only_compiled_or_in_16_bits_is_short_attention_plain():
    compiled = dataclasses.replace(STEP, precision="fp32", execution="compiled")
    assert compiled.attention_on("cpu", 128) == "math"
    assert compiled.attention_on("cpu", 129) == "auto"
    assert compiled.attention_on("cuda", 128) == "auto"
    assert dataclasses.replace(compiled, execution="eager").attention_on("cpu", 128) == "auto"


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
