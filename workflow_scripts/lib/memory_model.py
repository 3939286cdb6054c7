"""What a training step takes of a device's memory, by kind and by moment, in closed form: before anything runs.

Letters: B sequences of a batch, T sequence length, d `n_embd`, F `n_inner`, h heads, V vocabulary, L layers,
n tokens of a micro-batch. Nothing here imports torch, so that a workflow can plan with it.

What is predicted is what live tensors take (allocated), as `memory_probe.probe_allocated` measures it. Left out is, on
a processor in 16 bits: what oneDNN packs of a product while it computes it, a few MiB at most on few threads; and that
the compiler may turn several gradients into float32 in one kernel, for which the first of them wait (seen in GPT-2 in
fp16, with few tokens). Nor is it known in which order a compiler computes each graph: the closed form has the common
one (another was seen in llama in bf16 with checkpointing, and with few tokens).
"""

import dataclasses

from workflow_scripts.lib.block_memory import block_memory
from workflow_scripts.lib.counts import count_parameters
from workflow_scripts.lib.gpu import CUBLASLT_WORKSPACE, UNKNOWN, Gpu
from workflow_scripts.lib.optimizer_memory import (
    held_bytes,
    optimizer_scratch_bytes,
    optimizer_state_bytes,
    parameter_sizes,
)
from workflow_scripts.lib.pass_moments import backward_moments, forward_moments
from workflow_scripts.lib.specs import DeviceType, Mode, ModelShape, OptimizerSpec, StepSpec
from workflow_scripts.lib.tuning_moments import tuning_moment

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
    threads: int = 1,
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
        threads: on a CPU, torch's; each has something of its own in fused attention.
    """
    block, count = block_memory(shape, step, device_type, threads), count_parameters(shape)
    moments = forward_moments(shape, step, block)
    if mode != "forward":
        moments |= backward_moments(shape, step, block, device_type, gpu)
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
    if mode == "optimizer":  # which makes its state when its gradients have been computed, once and for all
        for name in kinds.keys() - {"optimizer"}:
            kinds[name]["optimizer"] = 0
    totals = {name: sum(at.values()) for name, at in kinds.items()}
    phases: dict[str, int] = {}
    for name, total in totals.items():
        phase = "optimizer" if name == "optimizer" else name.rsplit("_", 1)[1]
        phases[phase] = max(phases.get(phase, 0), total)
    if device_type == "cuda" and gpu.cache_bytes and step.execution != "eager":
        tuning = tuning_moment(shape, step, block, gpu, mode)
        beside = {**held, "gradients": 0, "optimizer": 0}  # the first step makes them later
        kinds["tuning"] = {kind: beside.get(kind, 0) + tuning.get(kind, 0) for kind in {**beside, **tuning}}
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
    the thread of the forward pass, and on that of the backward pass where checkpointing computes it again.
    """
    if device_type != "cuda":
        return 0
    backward = mode != "forward"
    n = 1 + backward + (step.execution == "graphed")
    n_lt = 1 + (backward and step.checkpointing) if shape.architecture == "gpt2" and shape.bias else 0
    return n * gpu.workspace_bytes + n_lt * CUBLASLT_WORKSPACE


def _data_bytes(shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec, device_type: DeviceType) -> int:
    """Inputs and targets as int64, the positions of a window, the learning rates, and what a step counts."""
    T = shape.sequence_length
    rotary = 0 if shape.architecture == "gpt2" else 8 * T * shape.n_embd // shape.n_head
    rates = [N_RATES] if optimizer.name in ("adamw", "sgd") else []  # the others take theirs from the host
    return _batch_bytes(shape, step) + rotary + 8 * (T + 1) + held_bytes([*rates, *[1] * SCALARS], device_type)


def _batch_bytes(shape: ModelShape, step: StepSpec) -> int:
    return 16 * step.batch_size * shape.sequence_length
