"""What a training step takes of a device's memory, by kind and by moment, in closed form: before anything runs.

Letters: B sequences of a batch, T sequence length, d `n_embd`, F `n_inner`, h heads, V vocabulary, L layers,
n tokens of a micro-batch. Nothing here imports torch, so that a workflow can plan with it.

What is predicted is what live tensors take (allocated), as `memory_probe.probe_allocated` measures it.
"""

import dataclasses

from workflow_scripts.lib.block_memory import BlockMemory, block_memory, element_bytes, residual_bytes
from workflow_scripts.lib.counts import block_matrices, block_vectors, count_parameters
from workflow_scripts.lib.gpu import CUBLASLT_WORKSPACE, UNKNOWN, Gpu
from workflow_scripts.lib.operator_work import has_head_loss
from workflow_scripts.lib.optimizer_memory import (
    held_bytes,
    optimizer_scratch_bytes,
    optimizer_state_bytes,
    parameter_sizes,
)
from workflow_scripts.lib.specs import DeviceType, Mode, ModelShape, OptimizerSpec, StepSpec

N_RATES = 1000  # learning rates that a timed step keeps: `cell.N_BATCHES`
SCALARS = 6  # loss, gradient norm, skipped steps, cursor, share of a micro-batch, learning rate


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes that tensors take on the device in a training step, as an allocator counts them, by kind and by moment.

    `activations_bytes` is what the blocks keep for the backward pass of one micro-batch, `logits_bytes` what logits
    and loss take at their largest. The kinds are not all there at once: `moments` holds the total at each moment that
    can be the peak, `phases` the largest of `forward`, `backward` and `optimizer` in a steady step, `at_peak` the
    kinds at the largest moment of all, whose sum is `peak_bytes`.
    """

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    logits_bytes: int
    peak_bytes: int
    phases: dict[str, int]
    moments: dict[str, int]
    at_peak: dict[str, int]


def estimate_memory(
    shape: ModelShape,
    step: StepSpec,
    optimizer: OptimizerSpec,
    device_type: DeviceType,
    *,
    resident_bytes: int = 0,
    mode: Mode = "step",
    gpu: Gpu = UNKNOWN,
) -> MemoryEstimate:
    """Predicts the peak of a steady step; of a compiled one on CUDA, that of the first one where it is larger.

    The peak is the maximum over moments. Where blocks run one after the other, what they keep goes away from the last
    to the first while their gradients appear, so the first or the last of them is the largest.

    Args:
        shape: the model.
        step: batch, precision, attention, checkpointing, accumulation.
        optimizer: its name and momentum count.
        device_type: where it runs; kernels differ in what they keep.
        resident_bytes: what else the process holds on the device all the time, such as the tokens.
        mode: the part of the step that runs; all but `step` and `optimizer` never make an optimizer's state.
        gpu: on CUDA, which; it sizes what its kernels take beside tensors.
    """
    block, count = block_memory(shape, step, device_type), count_parameters(shape)
    moments = _forward(shape, step, block)
    if mode != "forward":
        moments |= _backward(shape, step, block, device_type, gpu)
    gradients = held_bytes(parameter_sizes(shape), device_type)
    if mode == "step":  # those of the step before go as this one begins
        moments = {"before_forward": {"gradients": gradients}, **moments}
    if mode in ("step", "optimizer"):
        moments["optimizer"] = {
            "gradients": gradients,
            "workspace": optimizer_scratch_bytes(shape, optimizer, device_type, gpu),
            "data": -_batch_bytes(shape, step),  # of no use any more
        }
    state = optimizer_state_bytes(shape, optimizer, device_type) if "optimizer" in moments else 0
    held = {
        "parameters": held_bytes(parameter_sizes(shape), device_type),
        "optimizer": state,
        "data": resident_bytes + _data_bytes(shape, step, optimizer, device_type),
        "workspace": product_workspace_bytes(shape, step, device_type, mode, gpu),
    }
    if step.accumulation > 1 and mode != "forward":  # gradients of earlier micro-batches are there from the start
        held["gradients"] = gradients
        for name in ("before_forward", "optimizer"):
            if name in moments:
                moments[name]["gradients"] = 0
    kinds = {
        name: {kind: held.get(kind, 0) + more.get(kind, 0) for kind in {**held, **more}}
        for name, more in moments.items()
    }
    totals = {name: sum(at.values()) for name, at in kinds.items()}
    phases: dict[str, int] = {}
    for name, total in totals.items():
        phase = "optimizer" if name == "optimizer" else name.rsplit("_", 1)[1]
        phases[phase] = max(phases.get(phase, 0), total)
    cache = gpu.cache_bytes if device_type == "cuda" else 0
    if cache and step.execution != "eager":
        # In the first step the compiler times variants of kernels, such as those that sum the gradients of a
        # normalisation over rows, and wipes the cache with a tensor of its size.
        of_block = "attention_backward" if step.checkpointing else "mlp_backward"
        summing = ("norm_backward", of_block, "embedding_backward") if mode != "forward" else ("block_forward",)
        during = max(summing, key=totals.__getitem__)
        kinds["tuning"] = {
            **kinds[during],
            "gradients": moments[during].get("gradients", 0),  # of the first micro-batch
            "optimizer": 0,
            "workspace": kinds[during]["workspace"] + cache,
        }
        totals["tuning"] = sum(kinds["tuning"].values())
    largest = max(totals, key=totals.__getitem__)
    return MemoryEstimate(
        parameters_bytes=4 * count.total,
        gradients_bytes=4 * count.total if mode != "forward" else 0,
        optimizer_bytes=state,
        activations_bytes=moments["loss_forward"]["activations"],
        logits_bytes=max(more.get("logits", 0) for more in moments.values()),
        peak_bytes=totals[largest],
        phases=phases,
        moments=totals,
        at_peak={kind: size for kind, size in kinds[largest].items() if size},
    )


def product_workspace_bytes(shape: ModelShape, step: StepSpec, device_type: DeviceType, mode: Mode, gpu: Gpu) -> int:
    """Gives the bytes that matrix products keep as their workspaces.

    torch has one for each pair of cuBLAS handle and stream, and a handle for each thread. Backward passes run in a
    thread of autograd's. A captured step has a stream of its own, beside the one on which all else runs that computes
    products: the anchor of a measurement, the evaluations of a training. A linear layer with a bias is cuBLASLt's, on
    the thread of the forward pass.
    """
    if device_type != "cuda":
        return 0
    n = 1 + (mode != "forward") + (step.execution == "graphed")
    lt = CUBLASLT_WORKSPACE if shape.architecture == "gpt2" and shape.bias else 0
    return n * gpu.workspace_bytes + lt


def _data_bytes(shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec, device_type: DeviceType) -> int:
    """Inputs and targets as int64, the positions of a window, the learning rates, and what a step counts."""
    T = shape.sequence_length
    rotary = 0 if shape.architecture == "gpt2" else 8 * T * shape.n_embd // shape.n_head
    rates = [N_RATES] if optimizer.name in ("adamw", "sgd") else []  # the others take theirs from the host
    return _batch_bytes(shape, step) + rotary + 8 * (T + 1) + held_bytes([*rates, *[1] * SCALARS], device_type)


def _batch_bytes(shape: ModelShape, step: StepSpec) -> int:
    return 16 * step.batch_size * shape.sequence_length


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Kept:
    """What stays from the forward pass to the backward pass, in bytes."""

    block: int  # by one block: activations, or with checkpointing its input only
    cast_block: int  # copies of its matrices in half precision, each until its backward product
    kept_cast: int  # of these, what stays
    cast_head: int
    embedding: int
    residual: int
    activations: int  # all of them together


def _kept(shape: ModelShape, step: StepSpec, block: BlockMemory) -> _Kept:
    n = _micro_tokens(shape, step)
    half = element_bytes(step) == 2
    cast = 2 * sum(rows * columns for rows, columns in block_matrices(shape)) if half else 0
    residual = residual_bytes(step) * shape.n_embd * n
    kept = residual + block.random_state if step.checkpointing else block.kept * n
    embedding = block.embedding * n
    return _Kept(
        block=kept,
        cast_block=cast,
        kept_cast=0 if step.checkpointing else cast,
        cast_head=2 * shape.vocab_size * shape.n_embd if half else 0,
        embedding=embedding,
        residual=residual,
        activations=embedding + shape.n_layer * kept + residual + block.norm * n,
    )


def _forward(shape: ModelShape, step: StepSpec, block: BlockMemory) -> dict[str, dict[str, int]]:
    """The moments of a forward pass: the last block, and the loss (logits and log-probabilities, float32)."""
    kept, n, L, half = _kept(shape, step, block), _micro_tokens(shape, step), shape.n_layer, element_bytes(step) == 2
    return {
        "block_forward": {
            "activations": kept.embedding + (L - 1) * kept.block + block.forward * n,
            "casts": L * kept.cast_block,
        },
        "loss_forward": {
            # In half precision the output of the last normalisation is cast, and there until the loss is.
            "activations": kept.activations + (4 * shape.n_embd * n if half and step.execution == "eager" else 0),
            "casts": L * kept.cast_block + kept.cast_head,  # autocast's cache has them all until its end
            "logits": _logits_bytes(step, 8) * n * shape.vocab_size,
        },
    }


def _backward(
    shape: ModelShape, step: StepSpec, block: BlockMemory, device_type: DeviceType, gpu: Gpu
) -> dict[str, dict[str, int]]:
    """The moments of a backward pass; gradients appear in it, but for those of earlier micro-batches."""
    kept, n = _kept(shape, step, block), _micro_tokens(shape, step)
    e, d, L, V, T = element_bytes(step), shape.n_embd, shape.n_layer, shape.vocab_size, shape.sequence_length
    tied, own = shape.architecture == "gpt2", has_head_loss(shape, step, device_type)
    slopes_apart = step.execution != "eager" and step.attention_on(device_type, T) == "math" and not own
    # Eagerly a gradient is added to earlier micro-batches' at once; a compiled pass gives all of them at its end.
    added = step.accumulation > 1 and step.execution == "eager"
    matrices = [rows * columns for rows, columns in block_matrices(shape)]
    down = matrices[3]
    new_block = 0 if added else 4 * (sum(matrices) + sum(block_vectors(shape)))
    # All but those of the first matrix and the normalisation before it.
    new_later = 0 if added else new_block - 4 * (matrices[0] + (5 * d if tied and shape.bias else d))
    new_head = 4 * V * d if tied or not added else 0  # that of a tied head waits for the embedding's
    all_kept = {"activations": kept.activations, "casts": L * kept.kept_cast + kept.cast_head}

    def within_block(activations: int, casts: int, gradients: int, workspace: int = 0) -> dict[str, int]:
        """Where a block takes this: in the first block, with all gradients of the others, or in the last."""
        others = {"activations": (L - 1) * kept.block, "casts": (L - 1) * kept.kept_cast}
        if new_block > kept.block + kept.kept_cast:
            others = {"gradients": (L - 1) * new_block}
        return {
            "activations": kept.embedding + kept.residual + activations + others.get("activations", 0),
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
            "gradients": 0 if own and e == 2 else e * V * d,
            "workspace": e * n * d,
        },
        "norm_backward": {
            "activations": kept.activations + (block.norm_backward - block.norm) * n,
            "casts": L * kept.kept_cast,
            "gradients": new_head,
        },
        "mlp_backward": within_block(block.mlp_backward * n, kept.cast_block, e * down),
        # The gradient of the last matrix in half precision and in full, what led to it being gone.
        "cast_backward": within_block(
            (block.mlp_backward - e * (shape.n_inner + d)) * n, max(kept.cast_block - e * down, 0), (e % 4 + 4) * down
        ),
        "attention_backward": within_block(block.attention_backward * n, 0, new_later),
        "embedding_backward": {
            "gradients": (0 if added else 4 * (count_parameters(shape).total - V * d))
            + (4 + _head_gradient_bytes(shape, step, device_type) if tied else 4) * V * d,
        },
    }
    if device_type == "cuda" and step.execution == "eager" and tied and shape.bias:
        # A bias's gradient is summed beside the weight's and the input's of its layer: of up, and of queries to values.
        up, qkv = (block.mlp_backward - e * (2 * shape.n_inner - d)) * n, kept.residual + (block.norm + 4 * e * d) * n
        if step.checkpointing:  # the block's input and its gradient are not beside it (seen on an H200)
            up -= kept.residual + (e * d * n if e == 2 else 0)
        up_sum, qkv_sum = (gpu.sum_bytes(n, size) for size in (shape.n_inner, 3 * d))
        new_down = (e if added else e + 4) * down
        moments["up_backward"] = within_block(up, max(kept.cast_block - e * down, 0), new_down, up_sum)
        moments["qkv_backward"] = within_block(qkv, e * matrices[0], new_later + e * matrices[0], qkv_sum)
    return moments


def _logits_bytes(step: StepSpec, eager: int) -> int:
    """Bytes per logit; the compiler makes a loss in the one tensor of them, see also `head_loss`."""
    return eager if step.execution == "eager" else element_bytes(step)


def _head_gradient_bytes(shape: ModelShape, step: StepSpec, device_type: DeviceType) -> int:
    """Bytes per element of a tied head's gradient while the embedding's is added to it.

    Eagerly as the product gives it and then again; compiled in half precision the product and, in float32, the sum; in
    full precision the sum takes the place of one of them, and `head_loss` leaves the product alone.
    """
    e = element_bytes(step)
    if step.execution == "eager":
        return 2 * e
    return 3 * e if e == 2 else e if has_head_loss(shape, step, device_type) else 2 * e


def _micro_tokens(shape: ModelShape, step: StepSpec) -> int:
    return step.batch_size // step.accumulation * shape.sequence_length
