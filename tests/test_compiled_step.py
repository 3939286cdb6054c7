"""What the compiler is given instead of the plain operators, and that it is what was asked for."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import profile

from workflow_scripts.lib.execution import compile_loss
from workflow_scripts.lib.model import build_decoder, gelu
from workflow_scripts.lib.precision import residual_dtype
from workflow_scripts.lib.specs import ModelShape

SHAPE = ModelShape(
    architecture="gpt2",
    n_layer=1,
    n_head=2,
    n_embd=32,
    n_inner=64,
    vocab_size=65,
    sequence_length=32,
    bias=False,
)
TOKENS = torch.randint(65, (2, 33), generator=torch.Generator().manual_seed(0))


def test_the_compilers_gelu_is_the_same_function():
    x = torch.linspace(-8, 8, 999, requires_grad=True)
    compiled = torch.compile(gelu, fullgraph=True, backend="aot_eager")
    for function in (gelu, compiled):
        y = function(x)
        torch.testing.assert_close(y, F.gelu(x, approximate="tanh"), rtol=1e-5, atol=1e-6)
        (slope,) = torch.autograd.grad(y.sum(), x)
        (wanted,) = torch.autograd.grad(F.gelu(x, approximate="tanh").sum(), x)
        torch.testing.assert_close(slope, wanted, rtol=1e-4, atol=1e-5)


def test_compiled_plain_attention_is_not_fused_behind_our_back():
    decoder = build_decoder(SHAPE, "cpu", 1, attention="math")
    compiled = compile_loss(decoder)
    loss = compiled(TOKENS[:, :-1], TOKENS[:, 1:])
    torch.testing.assert_close(loss, decoder.loss(TOKENS[:, :-1], TOKENS[:, 1:]), rtol=1e-5, atol=1e-5)
    with profile() as seen:
        compiled(TOKENS[:, :-1], TOKENS[:, 1:])
    assert not [event.key for event in seen.key_averages() if "attention" in event.key]


@pytest.mark.parametrize(("dropout", "wanted"), [(0.0, {}), (0.2, {"triton.mix_order_reduction": False})])
def test_dropout_is_kept_out_of_the_kernel_of_both_norm_gradients(monkeypatch, dropout, wanted):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda loss, **options: asked.append(options["options"]))
    compile_loss(build_decoder(dataclasses.replace(SHAPE, dropout=dropout), "cpu", 1))
    assert asked == [wanted]


@pytest.mark.parametrize(
    ("precision", "execution", "wanted"),
    [
        ("bf16", "eager", None),
        ("bf16", "compiled", torch.bfloat16),
        ("bf16", "graphed", torch.bfloat16),
        ("fp16", "compiled", None),
        ("fp32", "graphed", None),
    ],
)
def test_only_compiled_bf16_narrows_the_residual_stream(precision, execution, wanted):
    assert residual_dtype(precision, execution) == wanted


def test_a_narrow_residual_stream_changes_rounding_only():
    decoder = build_decoder(SHAPE, "cpu", 1)
    found = {}
    for dtype in (None, torch.bfloat16):
        decoder.residual_dtype = dtype
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found[dtype] = float(decoder.loss(TOKENS[:, :-1], TOKENS[:, 1:]).detach())
            assert decoder.blocks[0](decoder.token_embedding(TOKENS).to(dtype or torch.float32), None).dtype == (
                dtype or torch.float32
            )
    assert found[torch.bfloat16] != found[None]
    assert found[torch.bfloat16] == pytest.approx(found[None], abs=2e-3)
