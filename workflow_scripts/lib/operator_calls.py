"""The operators of a training step as calls: each as `model` writes it, on random data, forward and backward apart.

Under autocast an operator's input has the type that it has in a step: what comes out of a product is of low precision.

Until an operator runs again, a step touches the memory of all others. So on a processor, whose caches would hold what
is called again at once, each call takes the next of several copies; only what the operator before it has just written
is the same each time, and results are kept until their turn comes again.
"""

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import sdpa_kernel
from torch.nn.utils import get_total_norm

from workflow_scripts.lib.model import BACKENDS, gelu, rotate
from workflow_scripts.lib.optimizers import fused_works
from workflow_scripts.lib.specs import Attention, Precision, StepSpec

# Parameters of one size that an optimizer updates at once: so many that no cache holds them, as in a step.
TENSORS, UPDATED = (16, 256), 2**21
# Bytes over which an operator's copies are spread, and how many there are at most; on GPUs a call has no copies.
SPREAD_BYTES, COPIES = {"cpu": 2**27}, 128

PRECISIONS: dict[torch.dtype, Precision] = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}

Call = Callable[[], Any]


def build(kind: str, dims: tuple[int, ...], device: torch.device) -> tuple[Call | None, Call | None]:
    """Gives one operator's forward and backward call, None for what it has not; called under the precision's autocast.

    A bias costs its gradient, the sum over all rows; a product adds it as it writes.
    """
    if kind == "optimizer":
        return _optimizer(dims[0], device), None
    function, newest = _function(kind, dims, device)
    output = function(*newest)
    outer = torch.randn_like(output)
    copies = [newest, *_copies(newest, output)]
    outputs = [output, *(function(*inputs) for inputs in copies[1:])]
    kept: list[Any] = [None] * len(copies)
    turns = itertools.cycle(range(len(copies)))

    def forward() -> Tensor:
        turn = next(turns)
        kept[turn] = function(newest[0], *copies[turn][1:])
        return kept[turn]

    def backward() -> None:
        turn = next(turns)
        wanted = [tensor for tensor in copies[turn] if tensor.requires_grad]
        kept[turn] = torch.autograd.grad(outputs[turn], wanted, outer, retain_graph=True)

    return None if kind == "bias" else forward, backward


def _copies(inputs: list[Tensor], output: Tensor) -> list[list[Tensor]]:
    """Further copies of an operator's inputs, as many as fill `SPREAD_BYTES` together with their results."""
    size = sum(tensor.nbytes for tensor in (*inputs, output))
    n = min(SPREAD_BYTES.get(output.device.type, 0) // size, COPIES - 1)
    return [[tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in inputs] for _ in range(n)]


def _function(kind: str, dims: tuple[int, ...], device: torch.device) -> tuple[Callable[..., Tensor], list[Tensor]]:
    """The function of an operator as `model` writes it, and random inputs."""

    product = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else torch.float32

    def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, device=device, dtype=dtype, requires_grad=True)

    if kind == "linear":
        rows, inputs, outputs = dims
        return F.linear, [drawn(rows, inputs, dtype=product), drawn(outputs, inputs)]
    if kind == "bias":
        return lambda bias: bias.expand(dims), [drawn(dims[1], dtype=product)]
    if kind == "attention":
        sequences, heads, length, size = dims
        asked = StepSpec(batch_size=1, precision=PRECISIONS[product], execution="eager")
        attend = _attend(heads, asked.attention_on(device.type, length))
        return attend, [drawn(sequences, length, 3 * heads * size, dtype=product)]
    if kind == "rotary":
        sequences, heads, length, size = dims
        table = torch.randn(2, length, size, device=device)
        of_product = drawn(sequences, length, heads, size, dtype=product)
        return lambda x: rotate(x.transpose(1, 2), table), [of_product]
    if kind in ("layer_norm", "rms_norm"):
        rows, width = dims
        norm = F.layer_norm if kind == "layer_norm" else F.rms_norm
        return lambda x, weight: norm(x, (width,), weight), [drawn(rows, width), drawn(width)]
    if kind == "gelu":
        return gelu, [drawn(*dims, dtype=product)]
    if kind == "swiglu":
        rows, width = dims

        def swiglu(x: Tensor) -> Tensor:
            gate, up = x.chunk(2, dim=-1)
            return F.silu(gate) * up

        return swiglu, [drawn(rows, 2 * width, dtype=product)]
    if kind == "residual":
        return torch.add, [drawn(*dims), drawn(*dims, dtype=product)]
    if kind == "loss":
        rows, vocabulary = dims
        targets = torch.randint(vocabulary, (rows,), device=device)
        return lambda logits: F.cross_entropy(logits.float(), targets), [drawn(rows, vocabulary, dtype=product)]
    rows, vocabulary, width = dims
    tokens = torch.randint(vocabulary, (rows,), device=device)
    return lambda table: F.embedding(tokens, table), [drawn(vocabulary, width)]


def _attend(heads: int, backend: Attention) -> Callable[[Tensor], Tensor]:
    def attend(qkv: Tensor) -> Tensor:
        B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        q, k, v = (t.view(B, T, heads, -1).transpose(1, 2) for t in qkv.split(C, dim=2))
        with nullcontext() if backend == "auto" else sdpa_kernel(BACKENDS[backend]):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(B, T, C)

    return attend


def _optimizer(size: int, device: torch.device) -> Call:
    """The norm of the gradients and the update of AdamW, of many parameters of one size; timed per parameter."""
    n = min(max(UPDATED // size, TENSORS[0]), TENSORS[1])
    parameters = [nn.Parameter(torch.randn(size, device=device)) for _ in range(n)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.AdamW(parameters, fused=fused_works("adamw", device) or None)

    def update() -> None:
        get_total_norm([parameter.grad for parameter in parameters])
        optimizer.step()

    update.calls = n
    return update
