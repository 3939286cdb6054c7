"""Parameters, FLOPs and memory in closed form: against published counts and against torch itself."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from tests.tiny_run import ADAMW, CPU
from workflow_scripts.lib.counts import count_parameters, default_inner, estimate_memory, flops_per_token
from workflow_scripts.lib.model import Decoder, build_decoder
from workflow_scripts.lib.specs import ModelShape, StepSpec
from workflow_scripts.lib.step import TrainStep


def shape(architecture="gpt2", n_layer=2, n_head=2, n_embd=32, n_inner=None, vocab_size=65, sequence_length=64, **more):
    return ModelShape(
        architecture=architecture,
        n_layer=n_layer,
        n_head=n_head,
        n_embd=n_embd,
        n_inner=n_inner or 4 * n_embd,
        vocab_size=vocab_size,
        sequence_length=sequence_length,
        **more,
    )


def module(of: ModelShape) -> Decoder:
    with torch.device("meta"):
        return Decoder(of)


shapes = st.builds(
    lambda architecture, heads, pairs, **more: shape(architecture, n_head=heads, n_embd=2 * heads * pairs, **more),
    st.sampled_from(["gpt2", "llama"]),
    st.integers(1, 5),
    st.integers(1, 20),
    n_layer=st.integers(1, 4),
    n_inner=st.integers(1, 200),
    vocab_size=st.integers(1, 300),
    sequence_length=st.integers(1, 100),
    bias=st.booleans(),
)


@pytest.mark.parametrize(
    ("size", "published"),
    [
        ((12, 12, 768), 124_439_808),
        ((24, 16, 1024), 354_823_168),
        ((36, 20, 1280), 774_030_080),
        ((48, 25, 1600), 1_557_611_200),
    ],
)
def test_gpt2_has_the_published_parameters(size, published):
    assert count_parameters(shape("gpt2", *size, None, 50257, 1024)).total == published


def test_shakespeare_char_has_the_parameters_that_nanogpt_prints():
    count = count_parameters(shape("gpt2", 6, 6, 384, None, 65, 256, bias=False))
    assert count.total - count.position_embedding == 10_646_784  # "10.65M", without the table of positions


@pytest.mark.parametrize(
    ("size", "millions"),
    [
        ((12, 12, 768), 128.6),
        ((24, 16, 1024), 423.2),
        ((36, 20, 1280), 969.4),
        ((48, 25, 1600), 1998.2),
        ((32, 32, 2560), 3406.8),
    ],
)
def test_the_llamas_of_model_sizes_have_their_parameters(size, millions):
    """The last is called 2.7B where it was published."""
    of = shape("llama", *size, None, 10_000, 512)
    assert round(count_parameters(of).total / 1e6, 1) == millions
    assert sum(parameter.numel() for parameter in module(of).parameters()) == count_parameters(of).total


def test_the_usual_inner_width():
    assert default_inner("gpt2", 768) == 3072
    assert [default_inner("llama", width) for width in (24, 96, 768, 2560)] == [64, 256, 2048, 6848]


@given(of=shapes)
@settings(max_examples=40, deadline=None)
def test_parameters_are_the_modules(of):
    count, sizes = count_parameters(of), {name: p.numel() for name, p in module(of).named_parameters()}
    assert count.total == sum(sizes.values())
    assert count.token_embedding == sizes["token_embedding.weight"]
    assert count.position_embedding == sizes.get("position_embedding.weight", 0)
    assert count.head == sizes.get("head.weight", 0)
    inside = ("blocks.", "norm.")
    assert count.non_embedding == sum(size for name, size in sizes.items() if name.startswith(inside))


def test_flops_are_those_of_a_hand_count():
    # Per layer and token: q, k, v and projection 4 × 128², MLP 2 × 128 × 512, scores and their sum 2 × 64 × 128.
    # The head: 65 × 128. Each a multiply and an add.
    assert flops_per_token(shape("gpt2", 4, 4, 128, 512, 65, 64), 64).forward == 2 * (
        4 * (65_536 + 131_072 + 16_384) + 8_320
    )
    assert flops_per_token(shape("gpt2", 4, 4, 128, 512, 65, 64), 64).training == 5_161_728


@pytest.mark.parametrize(
    "of",
    [
        shape("gpt2", 3, 2, 32, 96, 50, 24),
        shape("gpt2", 1, 4, 64, 256, 300, 16, bias=False),
        shape("llama", 2, 3, 48, 128, 40, 32),
        shape("llama", 1, 1, 16, 64, 500, 8),
    ],
)
def test_flops_are_those_that_torch_counts(of):
    decoder = build_decoder(of, "cpu", 1, attention="math")  # torch has no formula for the CPU's fused attention
    x = torch.zeros(2, of.sequence_length, dtype=torch.int64)
    with FlopCounterMode(display=False) as forward:
        loss = decoder.loss(x, x)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    flops = flops_per_token(of, of.sequence_length)
    assert forward.get_total_flops() == flops.forward * x.numel()
    assert backward.get_total_flops() == (flops.training - flops.forward) * x.numel()


def allocated_peak(of: ModelShape, step: StepSpec, optimizer) -> int:
    """The most that torch's allocator has handed out while the real step was built and run twice, in bytes."""
    tokens = np.zeros(of.sequence_length + 1, dtype=np.uint8)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        built = TrainStep.build(of, step, optimizer, CPU, tokens, 2, 1)
        built.run()
        built.run()
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    return int(np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]).max())


SGD, MOMENTUM = (dataclasses.replace(ADAMW, name="sgd", momentum=momentum) for momentum in (0.0, 0.9))
MUON, ADAFACTOR = dataclasses.replace(ADAMW, name="muon", momentum=0.95), dataclasses.replace(ADAMW, name="adafactor")
WIDE, LONG, WORDY = {"n_embd": 128}, {"n_embd": 64, "sequence_length": 256}, {"n_embd": 64, "vocab_size": 4000}


@pytest.mark.parametrize(
    ("of", "optimizer", "step"),
    [
        (shape("gpt2", **LONG), ADAMW, {}),
        (shape("gpt2", **WORDY), ADAMW, {}),
        (shape("gpt2", **LONG, dropout=0.1), ADAMW, {}),
        (shape("gpt2", n_layer=6, **LONG), SGD, {"checkpointing": True}),
        (shape("gpt2", n_layer=4, **WIDE), ADAMW, {"accumulation": 4}),
        (shape("gpt2", **LONG), ADAMW, {"precision": "bf16"}),
        (shape("gpt2", n_layer=4, n_embd=256), MOMENTUM, {"batch_size": 1}),
        (shape("llama", **LONG), ADAMW, {}),
        (shape("llama", **WORDY), SGD, {"accumulation": 2}),
        (shape("llama", **LONG), ADAMW, {"attention": "math"}),
        (shape("llama", **LONG, dropout=0.1), MOMENTUM, {"precision": "bf16"}),
        (shape("llama", n_layer=6, **LONG), ADAMW, {"precision": "bf16", "checkpointing": True}),
        (shape("llama", n_embd=64, sequence_length=8), MUON, {"batch_size": 1}),
        (shape("gpt2", **WORDY), ADAFACTOR, {"batch_size": 1}),
    ],
)
def test_memory_is_that_of_the_real_step(of, optimizer, step):
    step = StepSpec(**{"batch_size": 4, "precision": "fp32", "execution": "eager"} | step)
    estimate = estimate_memory(of, step, optimizer, "cpu")
    assert estimate.peak_bytes == max(estimate.phases.values())
    assert estimate.peak_bytes == pytest.approx(allocated_peak(of, step, optimizer), rel=0.02)


def test_more_of_anything_takes_no_less_memory():
    base = {"n_layer": 3, "n_head": 4, "n_embd": 64, "n_inner": 256, "vocab_size": 500, "sequence_length": 64}
    step = StepSpec(batch_size=4, precision="bf16", execution="eager")
    for architecture in ("gpt2", "llama"):
        for device in ("cpu", "cuda", "mps"):
            small = estimate_memory(shape(architecture, **base), step, ADAMW, device).peak_bytes
            for key in base:
                larger = shape(architecture, **base | {key: 2 * base[key]})
                assert estimate_memory(larger, step, ADAMW, device).peak_bytes >= small
            twice = dataclasses.replace(step, batch_size=8)
            assert estimate_memory(shape(architecture, **base), twice, ADAMW, device).peak_bytes > small


def test_what_else_lives_on_the_device_is_added():
    of, step = shape(), StepSpec(batch_size=4, precision="fp32", execution="eager")
    alone, beside = (estimate_memory(of, step, ADAMW, "cuda", resident_bytes=size) for size in (0, 10**6))
    assert beside.peak_bytes == alone.peak_bytes + 10**6
