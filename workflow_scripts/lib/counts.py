"""What a shape says before anything runs: parameters and FLOPs per token; memory has a module of its own.

Letters: B sequences of a batch, T sequence length, d `n_embd`, F `n_inner`, h heads, V vocabulary, L layers,
n tokens of a micro-batch, N parameters. Nothing here imports torch, so that a workflow can plan with it.

Sources: Kaplan et al. 2020 (arXiv 2001.08361, section 2.1), PaLM (Chowdhery et al. 2022, arXiv 2204.02311, appendix B),
Korthikanti et al. 2022 (arXiv 2205.05198, equation 2).
"""

import dataclasses

from workflow_scripts.lib.specs import Architecture, ModelShape


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParameterCounts:
    """Parameters that exist once: a tied head is the token embedding and counts 0.

    `non_embedding` leaves out all that the vocabulary or the positions size: both embeddings and the head (Kaplan's N,
    but with the biases and normalisations that his 12 L d² neglects).
    """

    total: int
    non_embedding: int
    token_embedding: int
    position_embedding: int
    head: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlopCounts:
    """Model FLOPs per token, a multiply-add being two; `training` is forward and backward."""

    forward: int
    training: int


def default_inner(architecture: Architecture, n_embd: int) -> int:
    """Gives the usual hidden width of the MLP: 4 d, or for three SwiGLU matrices 8/3 d, rounded up to a multiple of 64.

    Both have as many parameters (Shazeer 2020, arXiv 2002.05202, section 3; Llama, section 2.2).
    """
    if architecture == "gpt2":
        return 4 * n_embd
    return -(-8 * n_embd // (3 * 64)) * 64


def block_matrices(shape: ModelShape) -> list[tuple[int, int]]:
    """Gives the matrices of one block as (outputs, inputs): qkv, attention's projection, up (with gate), down."""
    d, inner = shape.n_embd, shape.n_inner
    up = inner if shape.architecture == "gpt2" else 2 * inner
    return [(3 * d, d), (d, d), (up, d), (d, inner)]


def block_vectors(shape: ModelShape) -> list[int]:
    """Gives the lengths of the vectors of one block: two normalisations, and the biases of norms and matrices."""
    d = shape.n_embd
    if shape.architecture == "gpt2" and shape.bias:
        return [d] * 4 + [outputs for outputs, _ in block_matrices(shape)]
    return [d] * 2


def count_parameters(shape: ModelShape) -> ParameterCounts:
    """Counts the parameters of `model.Decoder`.

    GPT-2: V d + T d + L (4 d² + 2 d F + norms and biases) + final norm. Llama: 2 V d + L (4 d² + 3 d F + 2 d) + d.
    """
    tied = shape.architecture == "gpt2"
    matrices = sum(rows * columns for rows, columns in block_matrices(shape))
    final_norm = shape.n_embd * (2 if tied and shape.bias else 1)
    non_embedding = shape.n_layer * (matrices + sum(block_vectors(shape))) + final_norm
    token = shape.vocab_size * shape.n_embd
    position = shape.sequence_length * shape.n_embd if tied else 0
    head = 0 if tied else token
    return ParameterCounts(
        total=non_embedding + token + position + head,
        non_embedding=non_embedding,
        token_embedding=token,
        position_embedding=position,
        head=head,
    )


def flops_per_token(shape: ModelShape, sequence_length: int) -> FlopCounts:
    """Counts the FLOPs of matrix and attention products per token: 2 (L (4 d² + k d F) + V d) + 4 L T d forward.

    k is 2, for SwiGLU 3. The head counts once, tied or not; looking a token up counts 0. Attention counts QKᵀ and its
    product with V over all T positions: not halved for the causal mask (as in PaLM, appendix B). Backward is twice
    forward: each product gives one for its input and one for its weight. What checkpointing computes again is no work
    of the model and counts 0.
    """
    matrices = shape.n_layer * sum(rows * columns for rows, columns in block_matrices(shape))
    attention = 4 * shape.n_layer * sequence_length * shape.n_embd
    forward = 2 * (matrices + shape.vocab_size * shape.n_embd) + attention
    return FlopCounts(forward=forward, training=3 * forward)
