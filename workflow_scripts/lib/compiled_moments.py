"""What a compiled backward pass holds beside what its operators need, by moment. Without torch.

Letters as in `memory_model`. Such a graph keeps a tensor that it will use again, makes some gradients late, and sums
over rows in parts. All of it was read off what was allocated in steps on H200s (torch 2.11) and on CPUs (torch 2.13).
"""

from workflow_scripts.lib.block_memory import by_blocks, element_bytes, gelu_gives_way, residual_bytes
from workflow_scripts.lib.counts import block_matrices, count_parameters
from workflow_scripts.lib.specs import DeviceType, ModelShape, StepSpec

# Numbers and rows from which the sums over a normalisation's rows and over its columns are one kernel
# (torch/_inductor/scheduler.py, `MixOrderReduction`).
SUMMED_TOGETHER, ROWS_TOGETHER = 5 * 2**20, 4096
ROWS_OF_A_PART = 16  # that such a kernel sums in one part, as seen with 16,384 and 32,768 rows
# Bytes for each number of a token that GPT-2's graph for a CPU holds until biases' gradients are summed (torch 2.13).
HELD_FOR_BIASES = 5


def held_besides(shape: ModelShape, step: StepSpec, device_type: DeviceType) -> dict[str, int]:
    """Gives the bytes of each moment that has any, by the names of `pass_moments.backward_moments`."""
    e, d, F, T = element_bytes(step), shape.n_embd, shape.n_inner, shape.sequence_length
    n, tied = step.batch_size // step.accumulation * T, shape.architecture == "gpt2"
    math = step.attention_on(device_type, T) == "math"
    # The gradient of what the embedding put out, and dropout's mask.
    embedding = residual_bytes(step) * n * d + (n * d if shape.dropout else 0)
    # With it what the embedding put out, and a tensor that waits to be used again.
    whole = embedding + residual_bytes(step) * n * d + e * n * d
    if device_type == "cpu":
        return {} if by_blocks(step) else _held_on_cpu(shape, step, n, whole)
    found = {}
    if by_blocks(step):
        added = 4 * T * d if tied and step.accumulation > 1 else 0  # the positions' gradient, before it is added
        found["embedding_backward"] = embedding + added
        if e == 4 and not math and 2 * n * (d + F) < 5 * d * F:
            # Tokens are few beside the width: gradients of matrices come late, and what they are made of stays.
            found["mlp_backward"] = found["attention_backward"] = 2 * e * n * d if tied else e * n * F
        return found
    if math and not tied and e == 4 and not shape.dropout and shape.n_layer == 1:
        # Both normalisations' sums read the block's input and are one kernel, the last: what the second's is made of
        # stays; and the table that the embedding's gradient begins with is there.
        found["attention_backward"] = 2 * e * n * d + 4 * shape.vocab_size * d
    if not tied or (e == 4 and not shape.bias):  # else a tied head's gradient is added, or biases' are summed, then
        found["embedding_backward"] = whole
    biased = tied and shape.bias
    in_parts = e == 4 or (step.precision == "bf16" and not biased)  # seen with these
    if in_parts and not shape.dropout and n * d >= SUMMED_TOGETHER and n >= max(ROWS_TOGETHER, 2 * d):
        part = n // ROWS_OF_A_PART * 4 * d
        found["norm_backward"] = (4 if biased else 3) * part  # of weight and bias, and twice as much to add them up
        if biased:
            found["mlp_backward"] = 2 * part + e * n * d  # what the normalisation's gradient is made of, as well
    return found


def _held_on_cpu(shape: ModelShape, step: StepSpec, n: int, embedding: int) -> dict[str, int]:
    e, d, gpt2 = element_bytes(step), shape.n_embd, shape.architecture == "gpt2"
    found = {}
    if e == 4:
        waiting = 3 * e * n * d if gpt2 and shape.bias else 0  # until biases' gradients are summed
        found["embedding_backward"] = embedding + waiting
    if gpt2 and shape.bias:  # what a matrix read has a gradient before the matrix has, and what came in stays
        output = shape.n_inner if gelu_gives_way(shape, step, "cpu") else 0
        found["mlp_backward"] = e * n * (d + output)
        if e == 2:
            found["cast_backward"] = found["up_cast_backward"] = HELD_FOR_BIASES * n * d
    elif gpt2 and shape.dropout and e == 4:  # what dropout leaves of the gradient comes, and its mask goes
        found["mlp_backward"] = (e - 1) * n * d
    return found


def held_for_the_next_block(shape: ModelShape, step: StepSpec, moments: dict[str, dict[str, int]]) -> int:
    """Gives the bytes that wait in a block's fused attention on CUDA for the block before, which uses them again.

    They are the gradients of what the MLP's matrices put out and, in half precision, llama's of its first matrix.

    Args:
        shape: the model, of several blocks in one graph.
        step: batch, precision, accumulation.
        moments: of the backward pass, without what waits.
    """
    e, n = element_bytes(step), step.batch_size // step.accumulation * shape.sequence_length
    llama, hidden = shape.architecture == "llama", e * shape.n_inner * n
    sizes = [hidden]
    if llama:
        sizes += [2 * hidden, 4 * shape.n_inner * shape.n_embd] if e == 2 else [2 * hidden]
    # The compiler reckons before it puts the gradient of gelu's input in the place of its output's, and without what
    # attention's kernel has for itself.
    peak = max(*map(tensor_bytes, moments.values()), tensor_bytes(moments["mlp_backward"]) + (0 if llama else hidden))
    return waiting_bytes(sizes, peak - tensor_bytes(moments["attention_backward"]) + 4 * shape.n_embd * n)


def held_of_last_block(shape: ModelShape, step: StepSpec, freed: int) -> int:
    """Gives the bytes by which the block before the last one holds more in its MLP than that, in float32 on a CPU.

    The last block's gradients are there, and tensors of its own that wait to be used again: the gradients of gelu's
    input, of queries, keys and values in one, of two of these apart, and of the scores. Seen with GPT-2, dropout
    and at least as many tokens as it is wide.

    Args:
        shape: the model.
        step: batch, precision, accumulation.
        freed: what the last block kept, less its gradients; where that is negative the first block has most.
    """
    n = step.batch_size // step.accumulation * shape.sequence_length
    if shape.architecture != "gpt2" or not shape.dropout or shape.n_layer == 1 or freed < 0 or n < shape.n_embd:
        return 0
    waiting = 4 * n * (shape.n_inner + 5 * shape.n_embd + shape.n_head * shape.sequence_length)
    return max(waiting - freed, 0)


def converted_late(shape: ModelShape, n_tokens: int, moments: dict[str, dict[str, int]]) -> int:
    """Gives the bytes of gradients in half precision that a CPU's graph keeps to its end, to be made float32 there.

    Conversions that follow one another are one function, before which all is there that it reads. GPT-2's are all in
    one where there are as many tokens as the model is wide, as kernels then go over equally many numbers. Else the
    compiler takes, of several orders, the one that it reckons to have the lowest peak. In one of them what adds least
    comes first: GPT-2's matrices are converted late whose conversion adds more than any product for a gradient, which
    lets go what it was made of. Llama's are taken in another order, the largest last. The peak is then one conversion
    of the largest beside all gradients in float32, unless the embedding's table is larger.

    Another order lets go earlier what is held for biases.

    Source: torch/_inductor/memory.py, `reorder_for_peak_memory` (torch 2.13).

    Args:
        shape: the model.
        n_tokens: of one micro-batch.
        moments: of the backward pass, without what this gives.
    """
    matrices = block_matrices(shape)
    sizes = [rows * columns for rows, columns in matrices]
    largest = max(sizes)
    if shape.architecture == "gpt2" and n_tokens == shape.n_embd:
        return 2 * shape.n_layer * sum(sizes)
    reckoned = 4 * count_parameters(shape).total + 2 * largest
    otherwise = max(map(tensor_bytes, moments.values()))
    if shape.architecture == "gpt2" and shape.bias:
        otherwise -= HELD_FOR_BIASES * n_tokens * shape.n_embd
    if shape.vocab_size * shape.n_embd > largest or reckoned >= otherwise:
        return 0
    if shape.architecture == "llama":
        return 2 * shape.n_layer * largest
    dearest = max(rows * columns - n_tokens * (rows + columns) for rows, columns in matrices)
    return 2 * shape.n_layer * sum(size for size in sizes if size > dearest)


def waiting_bytes(sizes: list[int], room: int) -> int:
    """Gives the sum of those tensors that wait, one after the other, to be used again: where there is room for them.

    Source: torch/_inductor/codegen/wrapper.py, `AllocateLine.should_reuse_buffer`: the peak of a graph may not grow.
    """
    waiting = 0
    for size in sizes:
        if waiting + size <= room:
            waiting += size
    return waiting


def tensor_bytes(kinds: dict[str, int]) -> int:
    """Gives the sum of a moment's kinds but for workspaces, of which a compiler knows nothing."""
    return sum(size for kind, size in kinds.items() if kind != "workspace")
