"""Head and loss in one operation: the same numbers as torch's own, gradients and kernel included."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch._inductor.utils import run_and_get_code

from workflow_scripts.lib import head_loss
from workflow_scripts.lib.specs import ModelShape

N, C, V = 8, 16, 50


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(rows, C, generator=generator, requires_grad=True) for rows in (N, V))
    return hidden, weight, torch.randint(V, (N,), generator=generator)


def with_gradients(loss: torch.Tensor, *tensors: torch.Tensor) -> list[torch.Tensor]:
    return [loss.detach(), *torch.autograd.grad(3.0 * loss, tensors)]


@pytest.mark.parametrize("compiled", [False, True])
def test_it_is_cross_entropy(compiled):
    hidden, weight, targets = inputs()
    function = head_loss.head_loss
    if compiled:
        function = torch.compile(function, fullgraph=True, backend="aot_eager")
    ours = with_gradients(function(hidden, weight, targets), hidden, weight)
    theirs = with_gradients(F.cross_entropy(F.linear(hidden, weight), targets), hidden, weight)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_under_autocast_products_are_narrow_and_gradients_of_parameters_are_not():
    hidden, weight, targets = inputs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = head_loss.head_loss(hidden, weight, targets)
        theirs = F.cross_entropy(F.linear(hidden, weight).float(), targets)
    wide = with_gradients(F.cross_entropy(F.linear(hidden, weight), targets), hidden, weight)
    narrow = with_gradients(ours, hidden, weight)
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-6)
    assert float(ours.detach()) != pytest.approx(float(wide[0]), rel=1e-6)
    for a, b in zip(narrow, wide, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=0.05, atol=0.03)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_there_is_one_tensor_of_logits_even_with_padded_rows(dtype):
    """As on a GPU, the compiler pads rows here; a vocabulary of 5,000 fills no whole lines of 128 bytes."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(rows, C, generator=generator, requires_grad=True) for rows in (N, 5000))
    targets = torch.randint(5000, (N,), generator=generator)

    def loss() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            return head_loss.head_loss(torch.tanh(hidden), weight, targets)

    with torch._inductor.config.patch(disable_padding_cpu=False, force_disable_caches=True):
        compiled, code = run_and_get_code(torch.compile(loss, fullgraph=True))
    assert f"({N}, 5000), (50" in code[0]  # rows of 5,024 or 5,056
    assert code[0].count(f"empty_strided_cpu(({N}, 5000)") == 1
    torch.testing.assert_close(compiled, loss())


def test_off_cuda_the_plain_operators_stay():
    assert not head_loss.applies(torch.device("cpu"), 50_304)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernel_writes_what_the_plain_operators_write():
    """In Triton's interpreter, which must be chosen before Triton is imported; no GPU is needed."""
    code = """
import torch
from workflow_scripts.lib.cross_entropy_kernel import launch
from workflow_scripts.lib.head_loss import cross_entropy_
torch.manual_seed(0)
for dtype, size in ((torch.float32, 5000), (torch.bfloat16, 17000)):
    plain = (3 * torch.randn(3, size)).to(dtype)
    written, targets = plain.clone(), torch.randint(size, (3,))
    torch.testing.assert_close(launch(written, targets), cross_entropy_(plain, targets))
    torch.testing.assert_close(written, plain, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-6)
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_a_decoder_gives_the_same_loss_either_way(monkeypatch):
    from workflow_scripts.lib.model import build_decoder

    shape = ModelShape(architecture="llama", n_layer=1, n_head=2, n_embd=C, n_inner=32, vocab_size=V, sequence_length=4)
    decoder = build_decoder(shape, "cpu", seed=0)
    tokens, targets = torch.randint(V, (2, 2, 4), generator=torch.Generator().manual_seed(0))
    plain = with_gradients(decoder.loss(tokens, targets), decoder.head.weight)
    monkeypatch.setattr(head_loss, "applies", lambda device, vocab_size: True)
    for a, b in zip(with_gradients(decoder.loss(tokens, targets), decoder.head.weight), plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
