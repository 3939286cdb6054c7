"""What a shape says before anything runs: parameters, FLOPs per token, and the memory of a training step.

Letters: B sequences of a batch, T sequence length, d `n_embd`, F `n_inner`, h heads, V vocabulary, L layers,
n tokens of a micro-batch, N parameters. Nothing here imports torch, so that a workflow can plan with it.

Sources: Kaplan et al. 2020 (arXiv 2001.08361, section 2.1), PaLM (Chowdhery et al. 2022, arXiv 2204.02311, appendix B),
Korthikanti et al. 2022 (arXiv 2205.05198, equation 2).
"""

import dataclasses

from workflow_scripts.lib.specs import Architecture, DeviceType, ModelShape, OptimizerSpec, StepSpec


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes that tensors take on the device in a training step, as an allocator counts them, by kind.

    `activations_bytes` is what the blocks keep for the backward pass of one micro-batch, `logits_bytes` what logits
    and loss take at their largest. `phases` holds the total at the moments that can be the peak; the kinds are not
    all there at once, so `peak_bytes` is the maximum over phases and less than the sum over kinds.
    """

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    logits_bytes: int
    peak_bytes: int
    phases: dict[str, int]


def estimate_memory(
    shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec, device_type: DeviceType, *, resident_bytes: int = 0
) -> MemoryEstimate:
    """Estimates the peak of allocated memory over an eager step, from what autograd keeps of each operator.

    A step is: for each micro-batch forward, loss, and backward from the head down to the embedding; then the optimizer.
    Going backward, gradients appear as activations disappear, so that pass is largest at its first block or its last.
    Compiled steps need less: the estimate is a bound for them. Not in it: the CUDA context, workspaces of libraries,
    and what an allocator reserves beyond what it hands out. `resident_bytes` is what else lives on the device all the
    time, such as the tokens.
    """
    d, V, L = shape.n_embd, shape.vocab_size, shape.n_layer
    n = step.batch_size // step.accumulation * shape.sequence_length
    count = count_parameters(shape)
    tied, accumulates = not count.head, step.accumulation > 1
    e = element_bytes(step)
    block = block_memory(shape, step, device_type)

    # Held all the time: parameters, optimizer, inputs and targets as int64, gradients of earlier micro-batches.
    state, gradients = optimizer_state_bytes(shape, optimizer), 4 * count.total
    held = resident_bytes + 4 * count.total + state + 16 * step.batch_size * shape.sequence_length
    held += gradients if accumulates else 0
    held += 0 if shape.architecture == "gpt2" else 8 * shape.sequence_length * d // shape.n_head  # rotary tables

    # Kept from forward to backward: activations, or with checkpointing the blocks' inputs only; and the copies that
    # autocast casts matrices to, each until its backward product (its own cache of them ends with the forward pass).
    matrices = [rows * columns for rows, columns in block_matrices(shape)]
    cast_block, cast_head = (2 * sum(matrices), 2 * V * d) if e == 2 else (0, 0)
    residual = 4 * d * n
    kept_block, kept_cast = (residual, 0) if step.checkpointing else (block.kept * n, cast_block)
    embedding = block.embedding * n
    activations = embedding + L * kept_block + residual + block.norm * n
    kept = held + activations + L * kept_cast + cast_head

    # Appearing in a backward pass: gradients. That of a tied head waits for that of the embedding.
    new_block = 0 if accumulates else 4 * (sum(matrices) + sum(block_vectors(shape)))
    new_mlp = 0 if accumulates else 4 * (matrices[2] + matrices[3])
    new_head = 4 * V * d if tied or not accumulates else 0

    def block_backward(within: int) -> int:
        """The total where a block needs `within`: the larger of the first block's and the last block's."""
        others = (L - 1) * max(kept_block + kept_cast, new_block)
        return held + embedding + residual + new_head + others + within

    phases = {
        "block_forward": held + embedding + (L - 1) * kept_block + L * cast_block + block.forward * n,
        "loss_forward": kept + 8 * n * V,  # logits and log-probabilities, float32
        "loss_backward": kept + 12 * n * V,  # log-probabilities, their gradient, and the gradient of the logits
        "head_backward": kept + e * (n * V + V * d + n * d),
        "norm_backward": kept - cast_head + new_head + (block.norm_backward - block.norm) * n,
        "mlp_backward": block_backward(block.mlp_backward * n + cast_block + e * matrices[3]),
        "attention_backward": block_backward(block.attention_backward * n + new_mlp),
        "embedding_backward": held + (0 if accumulates else gradients - 4 * V * d) + (12 if tied else 4) * V * d,
        "optimizer": held + (0 if accumulates else gradients) + optimizer_scratch_bytes(shape, optimizer, device_type),
    }
    return MemoryEstimate(
        parameters_bytes=4 * count.total,
        gradients_bytes=gradients,
        optimizer_bytes=state,
        activations_bytes=activations,
        logits_bytes=12 * n * V,
        peak_bytes=max(phases.values()),
        phases=phases,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockMemory:
    """Bytes per token: what a block keeps for its backward pass, and what it holds when its passes are largest."""

    kept: int
    norm: int  # of it, by one normalisation
    embedding: int  # kept before the first block
    forward: int
    norm_backward: int
    mlp_backward: int
    attention_backward: int


def block_memory(shape: ModelShape, step: StepSpec, device_type: DeviceType) -> BlockMemory:
    """Adds up what autograd keeps of each operator of a block.

    Without dropout and in one width this is Korthikanti's equation 2 less what fused attention never stores:
    16 d elements per token for GPT-2, or 64 d bytes in float32.
    """
    d, e = shape.n_embd, element_bytes(step)
    llama, dropout = shape.architecture == "llama", shape.dropout > 0
    residual, wide = 4 * d, e * d  # (B, T, C) of the residual stream, float32; of a matrix product
    # torch fuses RMSNorm on CUDA only; elsewhere the normalised input is a tensor more, and backward takes several.
    composite = llama and device_type != "cuda"
    norm = wide + (4 if llama else 8) + (residual if composite else 0)  # output, and 1 / std or mean and 1 / std
    # On the CPU dropout keeps its factors, elsewhere one byte for each.
    mask_element = 0 if not dropout else e if device_type == "cpu" else 1
    hidden = (4 if llama else 2) * e * shape.n_inner  # gate, up, silu, product; up, gelu
    rotated = 2 * wide if llama else 0

    # Assume: on MPS training takes the path of plain products, as on the CPU where there is dropout.
    if step.attention == "math" or device_type == "mps" or (device_type == "cpu" and dropout):
        scores = 4 * shape.n_head * shape.sequence_length  # always float32
        sequences = step.batch_size // step.accumulation
        bias = 4 * shape.sequence_length // sequences  # the mask, (T, T)
        # v is a copy, but for one head or one sequence: turning it then copies nothing, and it keeps all of qkv alive.
        whole = 2 * wide if e == 4 and 1 in (shape.n_head, sequences) else 0
        attention = 3 * residual + whole + wide + scores * (3 if dropout else 1)
        upcast = 3 * residual if e == 2 else 0
        largest = scores * 7 // 2 if dropout and e == 2 else scores * 3 if dropout else scores * 2
        attention_forward = residual + norm + 4 * wide + rotated + upcast + 3 * residual + bias + largest
        attention_backward = attention + scores * (1 if dropout else 2) + 2 * residual
    else:
        attention = 4 * wide + rotated + 4 * shape.n_head  # q, k, v, output; logarithms of the softmax's sums
        attention_forward = 0  # less than what the block keeps
        attention_backward = attention + 4 * wide
    mask = mask_element * d
    kept = 2 * (residual + norm + mask) + attention + hidden
    mlp_forward = 2 * residual + norm + hidden if step.checkpointing else kept
    return BlockMemory(
        kept=kept,
        norm=norm,
        embedding=mask * 4 // e if device_type == "cpu" else mask,
        forward=max(attention_forward, mlp_forward),
        norm_backward=5 * residual if composite else 2 * residual,
        mlp_backward=kept + (2 if llama else 1) * e * shape.n_inner,
        attention_backward=residual + norm + mask + attention_backward,
    )


def element_bytes(step: StepSpec) -> int:
    """Gives the bytes of an element that a matrix product puts out: autocast halves them."""
    return 2 if step.precision in ("bf16", "fp16") else 4


def optimizer_state_bytes(shape: ModelShape, optimizer: OptimizerSpec) -> int:
    """Gives the bytes of an optimizer's state: float32, of the parameters' size or, for Adafactor, of their sides."""
    count = count_parameters(shape)
    hidden = shape.n_layer * sum(rows * columns for rows, columns in block_matrices(shape))
    match optimizer.name:
        case "adamw":
            return 8 * count.total
        case "sgd":
            return 4 * count.total if optimizer.momentum else 0
        case "muon":  # AdamW for all but the blocks' matrices
            return 4 * hidden + 8 * (count.total - hidden)
        case "adafactor":
            sides = [(shape.vocab_size, shape.n_embd)] * (2 if count.head else 1)
            sides += [(shape.sequence_length, shape.n_embd)] if count.position_embedding else []
            sides += block_matrices(shape) * shape.n_layer
            vectors = count.non_embedding - hidden
            return 4 * (sum(map(sum, sides)) + vectors)


def optimizer_scratch_bytes(shape: ModelShape, optimizer: OptimizerSpec, device_type: DeviceType) -> int:
    """Gives the bytes that an update needs for a moment: none where it is one fused kernel (AdamW, SGD)."""
    if optimizer.name in ("adamw", "sgd"):
        return 0
    count = count_parameters(shape)
    *_, up, down = (rows * columns for rows, columns in block_matrices(shape))
    vocabulary = shape.vocab_size * shape.n_embd
    rest = count.total - count.non_embedding
    if optimizer.name == "adafactor":  # on the CPU one parameter after the other, elsewhere all at once
        return 4 * (max(vocabulary, up + down) if device_type == "cpu" else count.total)
    newton_schulz = 8 * max(up, down) + 4 * shape.n_embd**2
    return max(newton_schulz, 8 * vocabulary if device_type == "cpu" else 4 * rest)
