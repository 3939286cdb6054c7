"""What tensors take while a compiler times variants of its kernels, in the first step of a process. Without torch.

Letters as in `memory_model`. A GPU's compiler tunes a kernel at its first use: it wipes the cache with a tensor of its
size, and works on copies of what the kernel changes in place where they fit below the most that was ever allocated.
Blocks share their kernels, so those of a backward pass are tuned in the last block. All of it was read off what was
allocated in some thirty first steps on H200s (torch 2.11).
"""

import dataclasses

from workflow_scripts.lib.block_memory import BlockMemory, by_blocks, element_bytes, gelu_gives_way
from workflow_scripts.lib.gpu import Gpu
from workflow_scripts.lib.operator_work import has_head_loss
from workflow_scripts.lib.pass_moments import backward_moments, forward_moments
from workflow_scripts.lib.specs import Mode, ModelShape, StepSpec

# Numbers in a row: to sum up longer ones there is but one variant, until they are too many to be read at once.
FEW, MANY = 512, 1024
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
    if not by_blocks(first):
        _reorder(shape, first, moments)
    return moments


def _reorder(shape: ModelShape, first: StepSpec, moments: dict[str, dict[str, int]]) -> None:
    """Changes what is there when the kernel of the last block's activation is tuned, in a model that is one graph."""
    e, d, V = element_bytes(first), shape.n_embd, shape.vocab_size
    n, mlp, tied = first.batch_size * shape.sequence_length, moments["mlp_backward"], shape.architecture == "gpt2"
    down = shape.n_inner * d
    if shape.dropout and d <= FEW and 4 * down < e * n * shape.n_inner:  # a matrix small beside what it puts out
        mlp["activations"] += (e - 1) * n * d  # what dropout leaves of the gradient comes where its mask goes
        if e == 2:  # the last matrix's gradient is float32 already, its copy gone
            mlp["casts"] -= e * down
            mlp["gradients"] += 4 * down
    if tied and not gelu_gives_way(shape, first, "cuda"):  # where what it reads has its gradient its output is gone
        mlp["activations"] -= e * shape.n_inner * n
    if tied and e == 4 and _is_math(shape, first) and not has_head_loss(shape, first, "cuda"):
        # A tied head's gradient is made later than that.
        mlp["activations"] += e * n * d
        mlp["gradients"] -= 4 * V * d
    if d <= FEW and (shape.bias or shape.dropout or not tied):
        # What the last normalisation's gradient was computed of waits to be used again, if the graph's peak allows it.
        peak = max(sum(kinds.values()) for name, kinds in moments.items() if name.endswith("backward"))
        mlp["activations"] += max(0, min(e * n * d, peak - sum(mlp.values())))


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
    if math and shape.dropout and shape.sequence_length > MANY and not by_blocks(first):
        changed["attention_forward"] = 0
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
