"""What tensors take while a compiler times variants of its kernels, in the first step of a process. Without torch.

Letters as in `memory_model`. A GPU's compiler tunes a kernel at its first use: it wipes the cache with a tensor of its
size, and works on copies of what the kernel changes in place where they fit below the most that was ever allocated.
Blocks share their kernels, so those of a backward pass are tuned in the last block. All of it was read off what was
allocated in thirteen first steps on H200s (torch 2.11).
"""

import dataclasses

from workflow_scripts.lib.block_memory import BlockMemory, by_blocks, element_bytes, gelu_gives_way
from workflow_scripts.lib.gpu import Gpu
from workflow_scripts.lib.operator_work import has_head_loss
from workflow_scripts.lib.pass_moments import backward_moments, forward_moments
from workflow_scripts.lib.specs import Mode, ModelShape, StepSpec

FEW = 512  # numbers in a row: to sum up longer ones there is but one variant
# Rows of which a bias's gradient is summed at once. Where they are a sequence, the gradient that is summed is computed
# in the same kernel, which has one variant unless the sums are few; seen with so many sequences, not with 256.
SUMMED_ROWS, SUMMED_SEQUENCES = 128, 64


def tuning_moment(shape: ModelShape, step: StepSpec, block: BlockMemory, gpu: Gpu, mode: Mode) -> dict[str, int]:
    """Gives the kinds of the largest moment at which kernels are tuned, beside what a step always holds."""
    first = dataclasses.replace(step, batch_size=step.batch_size // step.accumulation, accumulation=1)
    changed = _changed_bytes(shape, first)
    most, largest = 0, {}
    for name, kinds in _first_moments(shape, first, block, gpu, mode).items():
        now = sum(kinds.values())
        if name in changed:
            copied = changed[name] if changed[name] <= max(most - now, gpu.cache_bytes) else 0
            now += gpu.cache_bytes + copied
            tuned = {**kinds, "workspace": kinds.get("workspace", 0) + gpu.cache_bytes + copied}
            largest = max(largest, tuned, key=lambda one: sum(one.values()))
        most = max(most, now)
    return largest


def _first_moments(
    shape: ModelShape, first: StepSpec, block: BlockMemory, gpu: Gpu, mode: Mode
) -> dict[str, dict[str, int]]:
    """The moments of the first passes, in their order: as its kernels find them where that is known."""
    moments = forward_moments(shape, first, block)
    if mode == "forward":
        return moments
    moments |= backward_moments(shape, first, block, "cuda", gpu, in_last_block=True)
    # No product ran in autograd's thread yet.
    for name in ("attention_forward", "block_forward", "loss_forward", "loss_backward"):
        moments[name]["workspace"] = -gpu.workspace_bytes
    if shape.architecture == "gpt2" and not by_blocks(first):
        e, d, V = element_bytes(first), shape.n_embd, shape.vocab_size
        n, mlp = first.batch_size * shape.sequence_length, moments["mlp_backward"]
        if not gelu_gives_way(shape, first, "cuda"):  # but where what it reads has its gradient its output is gone
            mlp["activations"] -= e * shape.n_inner * n
        if e == 4 and _is_math(shape, first) and not has_head_loss(shape, first, "cuda"):
            # A tied head's gradient is made later than that.
            mlp["activations"] += e * n * d
            mlp["gradients"] -= 4 * V * d
    return moments


def _changed_bytes(shape: ModelShape, first: StepSpec) -> dict[str, int]:
    """The moments at which kernels are tuned, with what the largest of these kernels changes in place."""
    e, n, V = element_bytes(first), first.batch_size * shape.sequence_length, shape.vocab_size
    llama, math = shape.architecture == "llama", _is_math(shape, first)
    # The table's gradient, where it is made apart from a tied head's. In half precision its copy is gone when the sum
    # of both, in float32, takes as much.
    apart = by_blocks(first) or (has_head_loss(shape, first, "cuda") and (llama or e == 4))
    table = 4 * V * shape.n_embd if apart else 0
    changed = {"mlp_backward": 0 if llama else e * shape.n_inner * n, "embedding_backward": table}
    if e == 2:
        changed |= {"cast_backward": 0, "qkv_cast_backward": 0}
    if V <= FEW:
        changed |= {"loss_forward": 0, "loss_backward": e * n * V}
    if math and not has_head_loss(shape, first, "cuda"):
        changed["loss_backward"] = 4 * n * V
    if not math or shape.sequence_length <= FEW:
        changed |= dict.fromkeys(("attention_forward", "block_forward", "attention_backward", "again_backward"), 0)
    summed = shape.sequence_length == SUMMED_ROWS and first.batch_size <= SUMMED_SEQUENCES
    if shape.bias and not llama and summed and shape.n_inner > FEW and not by_blocks(first):
        del changed["mlp_backward"]
        if not math:
            del changed["attention_backward"]
    return changed


def _is_math(shape: ModelShape, step: StepSpec) -> bool:
    return step.attention_on("cuda", shape.sequence_length) == "math"
