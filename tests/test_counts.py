"""Parameters and FLOPs in closed form: against published counts and against torch itself."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from workflow_scripts.lib.counts import count_parameters, default_inner, flops_per_token
from workflow_scripts.lib.model import Decoder, build_decoder
from workflow_scripts.lib.specs import ModelShape


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
@settings(max_examples=40)
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
