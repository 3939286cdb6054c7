"""The moments of a step's forward and backward pass, and what tensors of each kind take at each. Without torch.

Letters as in `memory_model`. Blocks run one after the other: what they keep goes away from the last to the first while
their gradients appear.
"""

import dataclasses

from workflow_scripts.lib.block_memory import BlockMemory, by_blocks, element_bytes, gelu_gives_way, residual_bytes
from workflow_scripts.lib.compiled_moments import (
    converted_late,
    held_besides,
    held_for_the_next_block,
    held_of_last_block,
)
from workflow_scripts.lib.counts import block_matrices, block_vectors, count_parameters
from workflow_scripts.lib.gpu import Gpu
from workflow_scripts.lib.operator_work import has_head_loss
from workflow_scripts.lib.recomputed_block import Held, recomputed_moments
from workflow_scripts.lib.specs import DeviceType, ModelShape, StepSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Kept:
    """What stays from the forward pass to the backward pass, in bytes."""

    block: int  # by one block: activations, or with checkpointing its input only
    cast_block: int  # copies of its matrices in half precision, each until its backward product
    kept_cast: int  # of these, what stays
    cast_head: int
    embedding: int  # with the mask of plain attention, which is there but once
    residual: int
    activations: int  # all of them together


def _kept(shape: ModelShape, step: StepSpec, block: BlockMemory) -> _Kept:
    n = _micro_tokens(shape, step)
    half = element_bytes(step) == 2
    cast = 2 * sum(rows * columns for rows, columns in block_matrices(shape)) if half else 0
    residual = residual_bytes(step) * shape.n_embd * n
    kept = residual + block.random_state if step.checkpointing else block.kept * n
    embedding = block.embedding * n + block.attention_mask
    return _Kept(
        block=kept,
        cast_block=cast,
        kept_cast=0 if step.checkpointing else cast,
        cast_head=2 * shape.vocab_size * shape.n_embd if half else 0,
        embedding=embedding,
        residual=residual,
        activations=embedding + shape.n_layer * kept + residual + block.norm * n,
    )


def forward_moments(shape: ModelShape, step: StepSpec, block: BlockMemory) -> dict[str, dict[str, int]]:
    """The moments of a forward pass: the last block, and the loss (logits and log-probabilities, float32)."""
    kept, n, L, half = _kept(shape, step, block), _micro_tokens(shape, step), shape.n_layer, element_bytes(step) == 2
    # Autocast's cache has them all until its end, and one graph for its backward pass; a block of its own drops them.
    cached = 0 if by_blocks(step) else L
    others, casts = kept.embedding + (L - 1) * kept.block, max(cached, 1) * kept.cast_block
    return {
        "attention_forward": {
            "activations": others + block.attention_forward * n,
            "casts": casts,
            "workspace": block.scratch_forward,
        },
        "block_forward": {"activations": others + block.forward * n, "casts": casts},
        "loss_forward": {
            # In half precision the output of the last normalisation is cast, and there until the loss is.
            "activations": kept.activations + (4 * shape.n_embd * n if half and step.execution == "eager" else 0),
            "casts": cached * kept.cast_block + kept.cast_head,
            "logits": _logits_bytes(step, 8) * n * shape.vocab_size,
        },
    }


def backward_moments(
    shape: ModelShape,
    step: StepSpec,
    block: BlockMemory,
    device_type: DeviceType,
    gpu: Gpu,
    *,
    in_last_block: bool = False,
) -> dict[str, dict[str, int]]:
    """The moments of a backward pass; gradients appear in it, but for those of earlier micro-batches.

    Those of a block are the first's or the last's, whichever are larger, or the last's if so asked.
    """
    kept, n = _kept(shape, step, block), _micro_tokens(shape, step)
    e, d, L, V, T = element_bytes(step), shape.n_embd, shape.n_layer, shape.vocab_size, shape.sequence_length
    eager, tied = step.execution == "eager", shape.architecture == "gpt2"
    for_cuda = device_type == "cuda" and not eager
    own = has_head_loss(shape, step, device_type)
    slopes_apart = not eager and step.attention_on(device_type, T) == "math" and not own
    # Eagerly a gradient is added to earlier micro-batches' at once; a compiled graph gives all of its own at its end.
    added = step.accumulation > 1 and eager
    block_added = added or (step.accumulation > 1 and by_blocks(step))
    matrices = [rows * columns for rows, columns in block_matrices(shape)]
    down = matrices[3]
    new_block = 0 if added else 4 * (sum(matrices) + sum(block_vectors(shape)))
    # All but those of the first matrix and the normalisation before it.
    new_later = 0 if added else new_block - 4 * (matrices[0] + (5 * d if tied and shape.bias else d))
    # Compiled in full precision, the product for a tied head's gradient and the sum with the embedding's are one
    # operation, the last of all, and what it reads stays until then.
    late = tied and not eager and e == 4 and not (own or by_blocks(step) or slopes_apart)
    late_logits, late_hidden = (e * n * V, e * n * d) if late else (0, 0)
    # A tied head's waits for the embedding's: compiled for CUDA in one graph as the product gives it.
    new_head = (e if tied and for_cuda and not by_blocks(step) else 4) * V * d
    if late or (block_added and not tied):
        new_head = 0
    casts_but_last = max(kept.cast_block - e * down, 0)
    # Computed again, the last matrix's copy is gone and its gradient not there when its input has one, unless a CPU's
    # compiler draws dropout's factors first.
    down_beside = not by_blocks(step) or shape.dropout > 0
    beside_mlp = (kept.cast_block, e * down) if down_beside else (casts_but_last, 0)
    gone = 0 if device_type == "cuda" and gelu_gives_way(shape, step, device_type) else shape.n_inner
    # Of queries, keys and values in half precision, until the block's last product; compiled llama's output matrix has
    # its gradient so, too.
    in_attention = e % 4 * (matrices[0] if eager else 0 if tied else matrices[0] + matrices[1])
    all_kept = {"activations": kept.activations, "casts": L * kept.kept_cast + kept.cast_head}

    def within_block(activations: int, casts: int, gradients: int, workspace: int = 0) -> dict[str, int]:
        """Where a block takes this: in the first block, with all gradients of the others, or in the last."""
        others = {"activations": (L - 1) * kept.block, "casts": (L - 1) * kept.kept_cast}
        if not (in_last_block or block_added) and new_block > kept.block + kept.kept_cast:
            others = {"gradients": (L - 1) * new_block}
        return {
            "activations": kept.embedding + kept.residual + activations + late_hidden + others.get("activations", 0),
            "logits": late_logits,
            "casts": casts + others.get("casts", 0),
            "gradients": new_head + gradients + others.get("gradients", 0),
            "workspace": workspace,
        }

    moments = {
        # Log-probabilities, their gradient, and the gradient of the logits; compiled, that only, and beside plain
        # products of attention as a tensor of its own (seen with torch 2.11 and 2.13).
        "loss_backward": {**all_kept, "logits": (_logits_bytes(step, 12) + 4 * slopes_apart) * n * V},
        # Where they are one, the head's weight in half precision is gone when its gradient comes, of the same size.
        "head_backward": {
            **all_kept,
            "logits": e * n * V,
            "gradients": 0 if late or (own and e == 2) else e * V * d,
            # Compiled, what the head read is gone when that gets its gradient, if the head's weight has its own; but a
            # processor packs what it multiplies in half precision, which is no tensor.
            "workspace": e * n * d if eager or (e == 2 and (own or not for_cuda)) else 0,
        },
        "norm_backward": {
            "activations": kept.activations + (block.norm_backward - block.norm) * n + late_hidden,
            "logits": late_logits,
            "casts": L * kept.kept_cast,
            "gradients": new_head,
        },
        "mlp_backward": within_block(block.mlp_backward * n, *beside_mlp),
        # The gradient of the last matrix in half precision and in full, what led to it being gone.
        "cast_backward": within_block((block.mlp_backward - e * (gone + d)) * n, casts_but_last, (e % 4 + 4) * down),
        "attention_backward": within_block(
            block.attention_backward * n, in_attention, new_later, block.scratch_backward
        ),
        "embedding_backward": {
            "activations": late_hidden,
            "logits": late_logits,
            "gradients": (0 if block_added else 4 * (count_parameters(shape).total - V * d))
            + (4 + _head_gradient_bytes(step) if tied else 4) * V * d,
        },
    }
    if e == 2 and eager:
        moments["head_cast_backward"] = {
            "activations": kept.activations, "casts": L * kept.kept_cast, "gradients": (e + 4) * V * d,
        }  # fmt: skip
    if by_blocks(step):
        again = {"again_backward": Held(per_token=block.again, casts=kept.cast_block)}
        for name, held in (recomputed_moments(shape, step) if for_cuda else again).items():
            moments[name] = within_block(held.per_token * n, held.casts, held.gradients)
    # The first matrix, last of a block to have its gradient: beside the input's, and in half precision as it is cast.
    first, qkv = matrices[0], kept.residual + (block.norm + 4 * e * d) * n
    if device_type == "cuda" and eager and tied and shape.bias:
        # A bias's gradient is summed beside the weight's and the input's of its layer: of down, up, queries to values.
        up = (block.mlp_backward - e * (2 * shape.n_inner - d)) * n
        if e == 2:  # the cast of the gradient that came in is gone
            up -= e * d * n
        if step.checkpointing:  # the block's input is not beside it (seen on an H200)
            up -= kept.residual
        down_sum, up_sum, qkv_sum = (gpu.sum_bytes(n, size) for size in (d, shape.n_inner, 3 * d))
        new_down = (e if added else e + 4) * down
        if not step.checkpointing:  # else what the matrix read is gone
            moments["mlp_backward"]["workspace"] += down_sum
        moments["up_backward"] = within_block(up, casts_but_last, new_down, up_sum)
    else:
        qkv_sum = 0
    new_first = new_later + (0 if added and e == 4 else e) * first
    moments["qkv_backward"] = within_block(qkv, (e % 4) * first, new_first, qkv_sum)
    if e == 2:
        moments["qkv_cast_backward"] = within_block(kept.residual + e * d * n, 0, new_later + (e + 4) * first)
        if device_type == "cpu" and not (eager or by_blocks(step)):
            # The second matrix's in half and in full precision, beside what attention kept; llama has more there.
            first_half = block.first_half if tied else block.first_half + (6 if shape.dropout else 4) * d
            moments["up_cast_backward"] = within_block(
                first_half * n, e * (matrices[0] + matrices[1]), 4 * down + (e + 4) * matrices[2]
            )
    if device_type in ("cpu", "cuda") and not eager:
        for name, size in held_besides(shape, step, device_type).items():
            moments[name]["activations"] += size
    if device_type == "cpu" and not eager and not by_blocks(step):
        if e == 2:
            moments["embedding_backward"]["casts"] = converted_late(shape, n, moments)
        else:
            moments["mlp_backward"]["activations"] += held_of_last_block(shape, step, kept.block - new_block)
    if for_cuda and not by_blocks(step) and L > 1 and step.attention_on("cuda", T) != "math":
        moments["attention_backward"]["activations"] += held_for_the_next_block(shape, step, moments)
    return moments


def _logits_bytes(step: StepSpec, eager: int) -> int:
    """Bytes per logit; the compiler makes a loss in the one tensor of them, see also `head_loss`."""
    return eager if step.execution == "eager" else element_bytes(step)


def _head_gradient_bytes(step: StepSpec) -> int:
    """Bytes per element of a tied head's gradient while the embedding's is added to it.

    Eagerly as the product gives it and then again; compiled in half precision the product and, in float32, the sum; in
    full precision the sum takes the place of the product. Where the embedding is a graph of its own, both come in
    float32.
    """
    e = element_bytes(step)
    if step.execution == "eager":
        return 2 * e
    if by_blocks(step):
        return 4
    return 3 * e if e == 2 else e


def _micro_tokens(shape: ModelShape, step: StepSpec) -> int:
    return step.batch_size // step.accumulation * shape.sequence_length
