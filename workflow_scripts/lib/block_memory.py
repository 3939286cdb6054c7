"""Bytes that one block of the decoder keeps for its backward pass, and holds at its largest moments. Without torch.

Letters as in `counts`. Source: Korthikanti et al. 2022 (arXiv 2205.05198, equation 2).
"""

import dataclasses

from workflow_scripts.lib.specs import DeviceType, ModelShape, StepSpec

CPU_RANDOM_STATE = 5056  # bytes of `torch.get_rng_state()`; a GPU's generator has 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockMemory:
    """Bytes per token: what a block keeps for its backward pass, and what it holds when its passes are largest."""

    kept: int
    norm: int  # of it, by one normalisation
    first_half: int  # of it, up to what attention puts out
    embedding: int  # kept before the first block
    forward: int
    attention_forward: int
    again: int  # where plain attention is computed again in a compiled backward pass, but for CUDA
    norm_backward: int
    mlp_backward: int
    attention_backward: int
    # Not per token: the mask of plain attention, one for all blocks; what checkpointing keeps of the generator, to draw
    # the same once more; and what the threads of a CPU have as their own in fused attention.
    attention_mask: int
    random_state: int
    scratch_forward: int
    scratch_backward: int


def block_memory(shape: ModelShape, step: StepSpec, device_type: DeviceType, threads: int = 1) -> BlockMemory:
    """Adds up what autograd keeps of each operator of a block. `threads` are a CPU's.

    Without dropout and in one width this is Korthikanti's equation 2 less what fused attention never stores:
    16 d elements per token for GPT-2, or 64 d bytes in float32.
    """
    d, e = shape.n_embd, element_bytes(step)
    llama, dropout = shape.architecture == "llama", shape.dropout > 0
    residual, wide = residual_bytes(step) * d, e * d  # (B, T, C) of the residual stream; of a matrix product
    compiled = step.execution != "eager"
    # Eagerly torch fuses RMSNorm on CUDA only; else the normalised input is a tensor more, and backward takes several.
    composite = llama and device_type != "cuda" and not compiled
    norm = wide + (4 if llama else 8) + (residual if composite else 0)  # output, and 1 / std or mean and 1 / std
    # Eagerly dropout keeps its factors on the CPU, elsewhere one byte for each.
    factors = device_type == "cpu" and not compiled
    mask_element = 0 if not dropout else e if factors else 1
    hidden = (4 - compiled if llama else 2) * e * shape.n_inner  # gate, up, silu (eagerly), product; up, gelu
    rotated = 2 * wide if llama else 0
    # Of gate and up, or of up.
    hidden_gradient = (2 if llama else 0 if gelu_gives_way(shape, step, device_type) else 1) * e * shape.n_inner
    if llama and by_blocks(step) and device_type == "cpu":  # their product has one before they are computed again
        hidden_gradient += e * shape.n_inner

    again = attention_mask = scratch_forward = scratch_backward = 0
    # Assume: on MPS training takes the path of plain products, as on the CPU where there is dropout.
    asked = step.attention_on(device_type, shape.sequence_length)
    if asked == "math" or device_type == "mps" or (device_type == "cpu" and dropout):
        scores = 4 * shape.n_head * shape.sequence_length  # always float32
        sequences = step.batch_size // step.accumulation
        mask_scores = 0 if not dropout else scores if factors else scores // 4
        # v is a copy, but for one head or one sequence: turning it then copies nothing, and it keeps all of qkv alive.
        whole = 2 * wide if e == 4 and 1 in (shape.n_head, sequences) else 0
        if compiled:
            # q, k, v, the output, the softmax; and what dropout leaves of it, which in 16 bits is computed again.
            attention = 4 * wide + whole + scores * (2 if dropout and e == 4 else 1) + mask_scores
            if by_blocks(step) and dropout and e == 4:  # dropout's factors are as wide as the scores here
                attention += scores - mask_scores
            on_cpu = device_type == "cpu" and not by_blocks(step)
            if on_cpu and dropout and e == 2:  # what the softmax is computed again from: maxima and sums
                attention += 8 * shape.n_head
            if device_type == "cuda" and not by_blocks(step) and (dropout or e == 2):  # a byte or a float each
                attention_mask = shape.sequence_length**2 * (4 if dropout and e == 4 else 1)
            elif on_cpu and e == 2 and sequences > 1:  # for one sequence it is made again
                attention_mask = shape.sequence_length**2
            # q, k, v twice, or in 16 bits v a second time in float32.
            copies = (6 if e == 4 else 5) * wide
            beside = residual + norm + copies
            # The scores and their softmax, in float32 one in place of the other where neither is kept; what dropout
            # leaves is kept as well, but in 16 bits. There on a CPU, and in float32, its tensor stays for the next
            # block's scores, so that the last block has one more (torch 2.13).
            handed_on = dropout and shape.n_layer > 1 and (e == 4 or on_cpu)
            n_scores = 1 if by_blocks(step) and e == 4 else 2 + handed_on
            attention_forward = beside + scores * n_scores + mask_scores
            if on_cpu and step.precision == "fp16":  # the residual stream's float32, of the block before
                attention_forward += residual
            # The softmax and its gradient, or in 16 bits that gradient and the softmax once more, turned.
            attention_backward = (5 if e == 4 else 4) * wide + whole + 2 * scores + mask_scores
            again = beside + 2 * scores
            # What the second matrix reads has its gradient already; a CPU's dropout has factors as wide as scores.
            again += e * shape.n_inner
            again += scores + (scores if device_type == "cpu" else mask_scores) if dropout else 0
            again += (8 * d if dropout or e == 2 else 0) + (4 * d if dropout and e == 2 else 0)  # in float32
        else:
            bias = 4 * shape.sequence_length // sequences  # the mask, (T, T)
            # Queries, keys and values are float32.
            attention = 12 * d + whole + wide + scores * (2 if dropout else 1) + mask_scores
            upcast = 12 * d if e == 2 else 0
            if device_type == "cuda":  # which looks for rows that see nothing, a byte for each score (torch 2.11)
                largest = scores * 9 // 4 + (scores // 2 if dropout and e == 2 else 0)
                gradients = (2 * scores - mask_scores if dropout else 3 * scores - whole) - wide
            else:
                largest = scores * 7 // 2 if dropout and e == 2 else scores * 3 if dropout else scores * 2
                gradients = (scores + 4 * d if e == 2 else scores) if dropout else 2 * scores - wide
            attention_forward = residual + norm + 4 * wide + rotated + upcast + 12 * d + bias + largest
            attention_backward = attention + gradients
    else:
        attention = 4 * wide + rotated + 4 * shape.n_head  # q, k, v, output; logarithms of the softmax's sums
        attention_forward = residual + norm + attention
        attention_backward = attention + 4 * wide
        if device_type == "cuda":  # sums over its output, and a tensor in float32
            attention_backward += 4 * shape.n_head + 4 * d
        if device_type == "cpu":
            scratch_forward, scratch_backward = (threads * size for size in _scratch_bytes(shape, e))
    # In one graph, what the last block's dropout leaves of the gradient comes with the gradient, on a CPU in float32.
    with_gradient = device_type == "cuda" or (device_type == "cpu" and e == 4)
    dropped = wide if dropout and compiled and with_gradient and not by_blocks(step) else 0
    mask = mask_element * d
    first_half = residual + norm + mask + attention
    kept = first_half + residual + norm + mask + hidden
    mlp_forward = kept
    # In half precision the gradient that comes in is cast, too.
    mlp_backward = kept + hidden_gradient + (wide if e == 2 and not (llama or compiled) else 0)
    if llama and factors and e == 4:  # those of dropout on the block's output are gone
        mlp_backward -= mask
    if dropout and device_type == "cuda" and e == 4 and not (llama or compiled):
        mlp_backward += wide - d  # what dropout leaves of the gradient comes, and its mask goes
    if step.checkpointing:
        # Where nothing is kept, the compiler has gelu take the place of what it reads.
        mlp_forward = 2 * residual + norm + (e * shape.n_inner if by_blocks(step) and not llama else hidden)
    return BlockMemory(
        kept=kept,
        norm=norm,
        first_half=first_half,
        embedding=mask * 4 // e if factors else mask,
        forward=mlp_forward,
        attention_forward=attention_forward,
        again=again,
        norm_backward=(5 if composite else 2) * residual + dropped,
        mlp_backward=mlp_backward,
        attention_backward=residual + norm + (0 if device_type == "cuda" else mask) + attention_backward,
        attention_mask=attention_mask,
        random_state=CPU_RANDOM_STATE if dropout and device_type == "cpu" else 0,
        scratch_forward=scratch_forward,
        scratch_backward=scratch_backward,
    )


def _scratch_bytes(shape: ModelShape, e: int) -> tuple[int, int]:
    """What a thread of a CPU has for a piece of the scores, forward and backward, in elements of `e` bytes.

    In float32, and in half precision once more. Source: torch 2.13's aten/src/ATen/native/cpu/FlashAttentionKernel.cpp.
    """
    T = shape.sequence_length
    rows, columns = min(T, 256 if T >= 768 else 64 if T >= 192 else 32), min(T, 512)
    piece = rows * columns * (6 if e == 2 else 4)
    return piece + 4 * rows * (2 + shape.n_embd // shape.n_head), 2 * piece


def residual_bytes(step: StepSpec) -> int:
    """Gives the bytes of an element of the residual stream, see `precision.residual_dtype`."""
    return 2 if step.precision == "bf16" and step.execution != "eager" else 4


def gelu_gives_way(shape: ModelShape, step: StepSpec, device_type: DeviceType) -> bool:
    """Whether the gradient of gelu's output comes when that output, which was kept, is gone.

    Compiled in one graph, a matrix has its gradient before its input has; on CUDA not if it has a bias and no dropout
    follows it, and on a processor sometimes not where there are fewer tokens than the model is wide.
    """
    if shape.architecture != "gpt2" or step.execution == "eager" or step.checkpointing:
        return False
    if device_type == "cpu":
        n_tokens = step.batch_size // step.accumulation * shape.sequence_length
        return n_tokens >= shape.n_embd  # with fewer rather more is said than less
    return not shape.bias or shape.dropout > 0


def by_blocks(step: StepSpec) -> bool:
    """Whether each block is a compiled graph of its own, see `execution.compile_loss`."""
    return step.execution != "eager" and step.checkpointing


def element_bytes(step: StepSpec) -> int:
    """Gives the bytes of an element that a matrix product puts out: autocast halves them."""
    return 2 if step.precision in ("bf16", "fp16") else 4
