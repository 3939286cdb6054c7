"""The decoder that Assay trains: GPT-2's block or Llama's, readable in one sitting.

Letters of the shapes in comments and docstrings: B batch (sequences), T sequence length (the context length),
C channels (`n_embd`), H heads, D head size (C / H), F hidden width of the MLP (`n_inner`), V vocabulary, L layers.
Parameters are float32; lower precision comes from `torch.autocast` around the call, never from casting the module.

Sources: GPT-2 (Radford et al. 2019; pre-normalisation, learned positions, tied head), Llama (Touvron et al. 2023,
section 2.2; RMSNorm, SwiGLU, rotary positions, untied head).
"""

import math
from contextlib import nullcontext
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from workflow_scripts.lib import head_loss
from workflow_scripts.lib.dropout import Dropout
from workflow_scripts.lib.specs import Attention, ModelShape

ROTARY_BASE = 10_000.0  # RoFormer (Su et al. 2021, section 3.3) and Llama
NORM_EPS = 1e-5  # GPT-2's LayerNorm; Llama 2's RMSNorm
INIT_STD = 0.02  # GPT-2
BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


class SelfAttention(nn.Module):
    """Causal attention of H heads: (B, T, C) -> (B, T, C)."""

    def __init__(self, shape: ModelShape, bias: bool, backend: Attention):
        super().__init__()
        self.n_head, self.dropout, self.backend = shape.n_head, shape.dropout, backend
        self.qkv = nn.Linear(shape.n_embd, 3 * shape.n_embd, bias=bias)  # one product instead of three
        self.proj = nn.Linear(shape.n_embd, shape.n_embd, bias=bias)

    def forward(self, x: Tensor, rotary: Tensor | None) -> Tensor:
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in self.qkv(x).split(C, dim=2))  # (B, H, T, D)
        if rotary is not None:
            q, k = rotate(q, rotary), rotate(k, rotary)
        # Here and not around the whole forward pass: checkpointing calls this again, from within the backward pass.
        with nullcontext() if self.backend == "auto" else sdpa_kernel(BACKENDS[self.backend]):
            dropout = self.dropout if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class MLP(nn.Module):
    """GPT-2: down(gelu(up(x))). Llama (SwiGLU, Shazeer 2020): down(silu(gate(x)) * up(x)). (B, T, C) -> (B, T, C)."""

    def __init__(self, shape: ModelShape, bias: bool):
        super().__init__()
        self.gated = shape.architecture == "llama"
        self.up = nn.Linear(shape.n_embd, shape.n_inner * (1 + self.gated), bias=bias)  # gated: gate first, then up
        self.down = nn.Linear(shape.n_inner, shape.n_embd, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.gated:
            gate, up = self.up(x).chunk(2, dim=-1)  # each (B, T, F)
            return self.down(F.silu(gate) * up)
        return self.down(gelu(self.up(x)))


class Block(nn.Module):
    """One layer: attention, then MLP, each normalised before and added to the residual stream x (B, T, C)."""

    def __init__(self, shape: ModelShape, bias: bool, backend: Attention):
        super().__init__()
        self.attention_norm = norm(shape)
        self.attention = SelfAttention(shape, bias, backend)
        self.mlp_norm = norm(shape)
        self.mlp = MLP(shape, bias)
        self.dropout = Dropout(shape.dropout)

    def forward(self, x: Tensor, rotary: Tensor | None) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), rotary))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class Decoder(nn.Module):
    """A language model of L blocks over `shape.vocab_size` tokens.

    Built under `torch.device("meta")` it costs nothing, whatever its size; see `build_decoder` for one that computes.
    Parameters hold no useful values before `init_weights` or `load_state_dict`.

    Args:
        shape: the model's shape.
        attention: the backend of `scaled_dot_product_attention`; `auto` leaves the choice to torch. A backend that the
            device, dtype or dropout rules out raises RuntimeError when it is called: torch does not fall back.
        checkpointing: keep only each block's input for the backward pass and compute the rest again there.

    Attributes:
        residual_dtype: type in which the residual stream passes from half-block to half-block; None leaves it to
            torch, which under autocast keeps it in float32.

    Raises:
        ValueError: the shape cannot be built.
    """

    def __init__(self, shape: ModelShape, *, attention: Attention = "auto", checkpointing: bool = False):
        super().__init__()
        check(shape)
        self.shape, self.attention, self.checkpointing = shape, attention, checkpointing
        self.residual_dtype: torch.dtype | None = None
        bias = shape.architecture == "gpt2" and shape.bias
        self.token_embedding = nn.Embedding(shape.vocab_size, shape.n_embd)
        self.dropout = Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Block(shape, bias, attention) for _ in range(shape.n_layer))
        self.norm = norm(shape)
        # GPT-2's head is the token embedding itself. A second name for it would be a trap: `to_empty` unties it, and
        # safetensors refuses it. So only an untied head is a module.
        if shape.architecture == "gpt2":
            self.position_embedding = nn.Embedding(shape.sequence_length, shape.n_embd)
            self.register_module("head", None)
            self.register_buffer("rotary", None)
        else:
            self.register_module("position_embedding", None)
            self.head = nn.Linear(shape.n_embd, shape.vocab_size, bias=False)
            self.register_buffer("rotary", rotary_table(shape), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Gives the logits (B, T, V) of the token that follows each of `tokens` (B, T) int64.

        Raises:
            ValueError: T exceeds the model's context.
        """
        return F.linear(self.norm(self.residual(tokens)), self.head_weight)

    def residual(self, tokens: Tensor) -> Tensor:
        """Gives the residual stream (B, T, C) as the last block leaves it."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = self.through(block, x)
        return x

    def embed(self, tokens: Tensor) -> Tensor:
        """Gives what the first block reads, (B, T, C)."""
        T = tokens.shape[1]
        if self.shape.sequence_length < T:
            raise ValueError(f"{T} tokens in a sequence: the model's sequence_length is {self.shape.sequence_length}")
        x = self.token_embedding(tokens)  # (B, T, C)
        if self.position_embedding is not None:
            x = x + self.position_embedding.weight[:T]  # a slice, not a look-up: its gradient needs no scatter
        x = self.dropout(x)
        return x if self.residual_dtype is None else x.to(self.residual_dtype)

    def through(self, block: Block, x: Tensor) -> Tensor:
        """Gives what a block makes of x (B, T, C)."""
        rotary = None if self.rotary is None else self.rotary[:, : x.shape[1]]
        if not (self.checkpointing and self.training):
            return block(x, rotary)
        # The random state is kept only where something is random: reading it forbids capturing a CUDA graph.
        return checkpoint(block, x, rotary, use_reentrant=False, preserve_rng_state=self.shape.dropout > 0)

    @property
    def head_weight(self) -> Tensor:
        """The head's matrix, (V, C)."""
        return (self.token_embedding if self.head is None else self.head).weight

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Gives the mean cross-entropy in nats per token, float32, of `targets` (B, T) given `tokens` (B, T), int64."""
        return self.loss_of(self.residual(tokens), targets)

    def loss_of(self, x: Tensor, targets: Tensor) -> Tensor:
        """Gives the same loss of what the last block leaves, x (B, T, C)."""
        hidden = self.norm(x).flatten(0, 1)  # (B T, C)
        if head_loss.applies(hidden.device, self.shape.vocab_size):
            return head_loss.head_loss(hidden, self.head_weight, targets.flatten())
        # No name is given to the logits: a name would keep their low-precision copy alive beside the float32 one.
        return F.cross_entropy(F.linear(hidden, self.head_weight).float(), targets.flatten())

    @torch.no_grad()
    def init_weights(self, seed: int, on: Literal["cpu", "device"] = "cpu") -> None:
        """Draws all weights: N(0, 0.02), output projections of blocks narrower by sqrt(2 L) (GPT-2), biases 0, norms 1.

        With `on="cpu"` the values are drawn on the CPU, parameter by parameter in the order of their names, so that
        every device starts from the same weights. `on="device"` draws where the parameters are, in seconds for
        billions of them: for models of which only time and memory are asked.
        """
        where = torch.device("cpu") if on == "cpu" else self.norm.weight.device
        generator = torch.Generator(where).manual_seed(seed)
        for name, parameter in sorted(self.named_parameters()):
            if parameter.ndim == 1:
                parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
                continue
            residual = name.endswith(("proj.weight", "down.weight"))
            std = INIT_STD / (2 * self.shape.n_layer) ** 0.5 if residual else INIT_STD
            drawn = parameter if parameter.device == where else torch.empty_like(parameter, device=where)
            parameter.copy_(drawn.normal_(0.0, std, generator=generator))
        if self.rotary is not None:  # `to_empty` leaves buffers undefined
            self.rotary.copy_(rotary_table(self.shape))


def build_decoder(
    shape: ModelShape,
    device: torch.device | str,
    seed: int,
    *,
    attention: Attention = "auto",
    checkpointing: bool = False,
    draw_on: Literal["cpu", "device"] = "cpu",
) -> Decoder:
    """Builds a decoder with drawn weights on `device`, never holding it twice and leaving torch's global seed alone."""
    with torch.device("meta"):
        decoder = Decoder(shape, attention=attention, checkpointing=checkpointing)
    decoder.to_empty(device=device)
    decoder.init_weights(seed, on=draw_on)
    return decoder


def gelu(x: Tensor) -> Tensor:
    """GPT-2's GELU, the tanh approximation ("gelu_new"; Hendrycks and Gimpel 2016); nanoGPT's is the exact one."""
    if not torch.compiler.is_compiling():
        return F.gelu(x, approximate="tanh")
    # (1 + tanh u) / 2 = sigmoid(2 u): the same function, but without tanh, which is slow in a CPU's vector code.
    return x * torch.sigmoid(2 * (2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x))


def norm(shape: ModelShape) -> nn.Module:
    """The normalisation over C before each half of a block and before the head."""
    if shape.architecture == "gpt2":
        return nn.LayerNorm(shape.n_embd, eps=NORM_EPS, bias=shape.bias)
    return nn.RMSNorm(shape.n_embd, eps=NORM_EPS)


def rotary_table(shape: ModelShape) -> Tensor:
    """Gives cos and signed sin of every position's angles, (2, T, D) float32 (Su et al. 2021, equation 34)."""
    half = shape.n_embd // shape.n_head // 2
    frequency = ROTARY_BASE ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = torch.outer(torch.arange(shape.sequence_length, dtype=torch.float32), frequency).repeat(1, 2)  # (T, D)
    sign = torch.ones(2 * half)
    sign[:half] = -1.0  # so that a rotation is two products and a sum, see `rotate`
    return torch.stack([angle.cos(), angle.sin() * sign])


def rotate(x: Tensor, rotary: Tensor) -> Tensor:
    """Turns the pairs (i, i + D/2) of queries or keys (B, H, T, D) by their position's angles, in float32."""
    cos, signed_sin = rotary
    return (x * cos + x.roll(x.shape[-1] // 2, -1) * signed_sin).to(x.dtype)


def check(shape: ModelShape) -> None:
    """Raises ValueError if no decoder has this shape."""
    for key in ("n_layer", "n_head", "n_embd", "n_inner", "vocab_size", "sequence_length"):
        if getattr(shape, key) < 1:
            raise ValueError(f"{key} is {getattr(shape, key)}: it must be at least 1")
    if shape.n_embd % shape.n_head:
        raise ValueError(f"n_embd is {shape.n_embd}: it must be a multiple of n_head, which is {shape.n_head}")
    head_size = shape.n_embd // shape.n_head
    if shape.architecture == "llama" and head_size % 2:
        raise ValueError(f"n_embd / n_head is {head_size}: it must be even, since rotary positions turn pairs")
    if not 0.0 <= shape.dropout < 1.0:
        raise ValueError(f"dropout is {shape.dropout}: it must be at least 0 and below 1")
