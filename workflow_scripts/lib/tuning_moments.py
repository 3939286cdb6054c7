"""What tensors take while a compiler times variants of its kernels, in the first step of a process. Without torch.

Letters as in `memory_model`. A GPU's compiler tunes a kernel at its first use: it wipes the cache with a tensor of its
size, and works on copies of what the kernel changes in place: in a backward pass where they fit below the most that
was ever allocated, in a forward pass in any case (`optimize_mem` in torch/_inductor). Blocks share their kernels, so
those of a backward pass are tuned in the last block. All of it was read off what was allocated in first steps on H200s
(torch 2.11).
"""

import dataclasses

from workflow_scripts.lib.block_memory import BlockMemory, by_blocks, element_bytes, gelu_gives_way
from workflow_scripts.lib.compiled_moments import tensor_bytes, waiting_bytes
from workflow_scripts.lib.gpu import Gpu
from workflow_scripts.lib.operator_work import has_head_loss
from workflow_scripts.lib.pass_moments import backward_moments, forward_moments
from workflow_scripts.lib.specs import Mode, ModelShape, StepSpec

# Numbers in a row: to sum up longer ones there is but one variant, until they are too many to be read at once.
FEW, MANY = 512, 1024
SHORT_ROW = 128  # where what is read is a normalisation's row
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
            fits = name.endswith("forward") or changed[name] <= max(most - now, gpu.cache_bytes)
            copied = changed[name] if fits else 0
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
    if _tunes_softmax(shape, first):  # which is the same kernel from the third block on
        later = max(shape.n_layer - 3, 0)
        moments["attention_forward"]["activations"] -= later * block.kept * first.batch_size * shape.sequence_length
    if mode == "forward":
        return moments
    moments |= backward_moments(shape, first, block, "cuda", gpu, in_last_block=True)
    # No product ran in autograd's thread yet.
    for name in ("attention_forward", "block_forward", "loss_forward", "loss_backward"):
        moments[name]["workspace"] = -gpu.workspace_bytes
    if not _is_math(shape, first):  # what fused attention's backward pass has of its own is gone
        moments["attention_backward"]["activations"] -= 4 * shape.n_embd * first.batch_size * shape.sequence_length
    if not by_blocks(first):
        _follow_the_compilers_order(shape, first, moments)
    elif _drops_again(shape, first):  # gelu is tuned when the cast is done
        moments["cast_backward"]["gradients"] -= element_bytes(first) % 4 * shape.n_inner * shape.n_embd
    return moments


def _follow_the_compilers_order(shape: ModelShape, first: StepSpec, moments: dict[str, dict[str, int]]) -> None:
    """Changes what is there when kernels of the last block's MLP and of the embedding are tuned, in one graph."""
    e, d, F, V = element_bytes(first), shape.n_embd, shape.n_inner, shape.vocab_size
    n, tied = first.batch_size * shape.sequence_length, shape.architecture == "gpt2"
    own = has_head_loss(shape, first, "cuda")
    mlp, embedding = moments["mlp_backward"], moments["embedding_backward"]
    early = e * n >= 8 * d  # where much is read for it, the last matrix's gradient is in float32 before gelu's is made
    if shape.dropout:  # its mask is gone
        mlp["activations"] -= n * d
    if e == 2 and not early:  # the matrix's copy is gone
        mlp["casts"] -= e * F * d
    if tied and e == 2 and V > FEW and not own:  # the last matrix's gradient is there in half precision and in full
        mlp["gradients"] += (2 if early else 4) * F * d
    if tied and not gelu_gives_way(shape, first, "cuda"):  # where what it reads has its gradient its output is gone
        mlp["activations"] -= e * F * n
    if tied and e == 4 and _is_math(shape, first) and not own:  # a tied head's gradient is made later than that
        mlp["activations"] += e * n * d
        mlp["gradients"] -= 4 * V * d
    if e == 4 and tied and first.batch_size == 1 and not shape.dropout and n * (F + d) < F * d and V < F:
        # What adds least is made first. With few tokens, that is the embedding's gradient if the table is smaller than
        # wide matrices; their gradients (of one of two at least) and the sum with a tied head's are made after it, and
        # what they are made of stays until then.
        embedding["gradients"] -= shape.n_layer * 4 * F * d + 4 * V * d
        embedding["activations"] += shape.n_layer * e * n * (F + d)
    # What a normalisation's gradient was computed of and what dropout left of it wait to be used again, where the
    # graph's peak does not grow by it.
    waiting = [e * n * d] * (2 if shape.dropout else 1 if shape.bias or not tied else 0)
    loss, attention, table = (tensor_bytes(moments[f"{name}_backward"]) for name in ("loss", "attention", "embedding"))
    in_place = 0 if own else e * n * V  # logits get their gradient so, which the compiler did not reckon with
    mlp["activations"] += waiting_bytes(waiting, max(loss + in_place, attention, table) - tensor_bytes(mlp))


def _changed_bytes(shape: ModelShape, first: StepSpec) -> dict[str, int]:
    """The moments at which kernels are tuned, with what the largest of these kernels changes in place."""
    e, n = element_bytes(first), first.batch_size * shape.sequence_length
    d, V = shape.n_embd, shape.vocab_size
    llama, math = shape.architecture == "llama", _is_math(shape, first)
    # The table's gradient, where it is made apart from a tied head's. In half precision its copy is gone when the sum
    # of both, in float32, takes as much. Llama's is changed in the normalisation's kernel, which has one variant unless
    # its rows are short.
    apart = by_blocks(first) or (has_head_loss(shape, first, "cuda") and (d <= SHORT_ROW if llama else e == 4))
    table = 4 * V * d if apart else 0
    changed = {"mlp_backward": 0 if llama else e * shape.n_inner * n, "embedding_backward": table}
    if e == 2:
        changed |= {"cast_backward": 0, "qkv_cast_backward": 0}
    if _drops_again(shape, first):  # what drops the gradient, and then gelu
        changed |= {"mlp_backward": 0, "cast_backward": changed["mlp_backward"]}
    if V <= FEW:
        changed |= {"loss_forward": 0, "loss_backward": e * n * V}
    if shape.dropout and d > MANY:  # the last normalisation, with what dropout leaves
        changed["norm_backward"] = 0
    if math and not has_head_loss(shape, first, "cuda"):
        changed["loss_backward"] = 4 * n * V
    if _tunes_softmax(shape, first):  # in half precision, in place
        changed["attention_forward"] = 4 * shape.n_head * shape.sequence_length * n if e == 2 else 0
    if not math or shape.sequence_length <= FEW:
        changed |= dict.fromkeys(("attention_forward", "block_forward", "again_backward"), 0)
    if not math or shape.sequence_length <= SHORT_ROW:
        changed["attention_backward"] = 0
    summed = shape.sequence_length == SUMMED_ROWS and first.batch_size <= SUMMED_SEQUENCES
    if shape.bias and not llama and summed and shape.n_inner > FEW:
        if by_blocks(first):  # gelu is tuned, which is computed again for it
            changed |= dict.fromkeys(changed.keys() & {"mlp_backward", "cast_backward"}, 0)
        else:
            del changed["mlp_backward"]
            if not math:
                del changed["attention_backward"]
    return changed


def _tunes_softmax(shape: ModelShape, first: StepSpec) -> bool:
    """Whether the softmax of long rows has variants: with dropout, in all blocks but the first."""
    long = shape.sequence_length > MANY and shape.n_layer > 1
    return _is_math(shape, first) and shape.dropout > 0 and long and not by_blocks(first)


def _drops_again(shape: ModelShape, step: StepSpec) -> bool:
    """Whether GPT-2's blocks drop out again what they dropped, in a backward pass of their own."""
    return by_blocks(step) and shape.dropout > 0 and shape.architecture == "gpt2"


def _is_math(shape: ModelShape, step: StepSpec) -> bool:
    return step.attention_on("cuda", shape.sequence_length) == "math"
