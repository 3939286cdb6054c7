"""The operators of a training step by closed form: which there are, how often, on how much, from a shape alone.

Letters as in `counts`: b sequences and n = b T tokens of a micro-batch, d `n_embd`, F `n_inner`, h heads, D = d / h,
V vocabulary, L layers, A micro-batches. An operator here is what a person would name, with its backward pass beside it:
`attention` goes from q, k and v in one tensor to what the projection reads. Nothing here imports torch.
"""

import dataclasses
import math
from typing import Any, Literal

from workflow_scripts.lib.block_memory import element_bytes, residual_bytes
from workflow_scripts.lib.counts import block_matrices, block_vectors, count_parameters
from workflow_scripts.lib.operator_sizes import ALWAYS_FP32
from workflow_scripts.lib.specs import DeviceType, ModelShape, StepSpec

Kind = Literal[
    "linear", "bias", "attention", "rotary", "layer_norm", "rms_norm", "gelu", "swiglu", "residual", "embedding",
    "loss", "optimizer",
]  # fmt: skip
Direction = Literal["forward", "backward"]

PRODUCTS = ("linear", "attention")
# Kernels that one call launches, forward and backward, in eager torch: what the host has to do for it.
LAUNCHES = {
    "linear": (1, 3), "bias": (0, 1), "attention": (1, 4), "rotary": (10, 12), "layer_norm": (1, 2),
    "rms_norm": (4, 8), "gelu": (1, 1), "swiglu": (2, 4), "residual": (1, 0), "embedding": (1, 2), "loss": (2, 2),
    "optimizer": (1, 0),
}  # fmt: skip
# Passes over memory per element, forward and backward, unfused; `loss` and `embedding` have elements of their own size.
PASSES = {
    "bias": (0, 1), "rotary": (8, 10), "layer_norm": (2, 4), "rms_norm": (6, 12), "gelu": (2, 3), "swiglu": (5, 8),
    "residual": (3, 1), "embedding": (2, 2), "loss": (4, 5), "optimizer": (8, 0),
}  # fmt: skip
# Assume: where a compiler has fused them, passes forward and backward over the residual stream, and over what lies
# between products. A normalisation takes along the addition before it and, backward, the one of the gradients. Kernels
# that write parts of one tensor (gate and up; q, k and v) compute every part wherever they are. So it is on an H200
# with torch 2.11 by the time of each kernel in a profile, at the rate of copies (rotary and SwiGLU in bf16 alone).
FUSED_PASSES = {
    "bias": ((0, 0), (0, 1)), "rotary": ((0, 2), (0, 16)), "layer_norm": ((2, 2), (4, 2)),
    "rms_norm": ((2, 2), (4, 2)), "gelu": ((0, 2), (0, 3)), "swiglu": ((0, 3), (0, 8)), "loss": ((0, 2), (0, 2)),
}  # fmt: skip
HEAD_LOSS_PASSES = ((0, 3), (0, 0))  # it leaves the gradient where the logits were


CAST = 0.6  # of what a residual addition reads and writes in 16 bits: 6 of 10 bytes an element
LARGE_VOCABULARY = 4096  # as in `head_loss`, which needs torch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operator:
    """One kind of work on one size, `calls` times forward and `backward_calls` times backward in a step.

    `dims`: linear (rows, inputs, outputs); attention and rotary (sequences, heads, T, D); loss (n, V); embedding
    (n, V, d); optimizer (elements of one parameter,); all others (rows, width). `of_vocabulary` are those whose work
    grows with the vocabulary; the size alone does not tell them, since a width may be the same number.
    """

    kind: Kind
    dims: tuple[int, ...]
    calls: float
    backward_calls: float
    of_vocabulary: bool = False


def step_operators(shape: ModelShape, step: StepSpec) -> list[Operator]:
    """Lists the operators of one optimizer step.

    With checkpointing a block's forward pass runs twice, but for its last product (early stop; torch's
    `use_reentrant=False`). Dropout is counted as further passes like that of a residual addition, and so is what eager
    autocast does between a normalisation and the products that read it: a cast there, and of the gradient back. Once
    compiled, the block's additions are part of its normalisations (`fused_bytes`).
    """
    d, F, L, V, A = shape.n_embd, shape.n_inner, shape.n_layer, shape.vocab_size, step.accumulation
    b = step.batch_size // A
    n, head = b * shape.sequence_length, (b, shape.n_head, shape.sequence_length, d // shape.n_head)
    llama, fused = shape.architecture == "llama", step.execution != "eager"
    norm: Kind = "rms_norm" if llama else "layer_norm"
    qkv, proj, up, down = (("linear", (n, inputs, outputs)) for outputs, inputs in block_matrices(shape))
    additions = 2 * (not fused) + 2 * (shape.dropout > 0)
    block: list[tuple[Kind, tuple[int, ...], float]] = [
        (norm, (n, d), 2),
        (*qkv, 1),
        ("attention", head, 1),
        (*proj, 1),
        (*up, 1),
        ("swiglu" if llama else "gelu", (n, F), 1),
        *([("residual", (n, d), additions)] if additions else []),
        *([("rotary", head, 2)] if llama else []),
    ]
    again = 2 if step.checkpointing else 1
    operators = [
        Operator(kind=kind, dims=dims, calls=A * L * calls * again, backward_calls=A * L * calls)
        for kind, dims, calls in block
    ]
    operators.append(Operator(kind=down[0], dims=down[1], calls=A * L, backward_calls=A * L))
    if shape.bias and not llama:
        operators += [
            Operator(kind="bias", dims=(n, outputs), calls=0, backward_calls=A * L)
            for _, (_, _, outputs) in (qkv, proj, up, down)
        ]
    operators.append(Operator(kind=norm, dims=(n, d), calls=A, backward_calls=A))
    ends: list[tuple[Kind, tuple[int, ...]]] = [("embedding", (n, V, d)), ("linear", (n, d, V)), ("loss", (n, V))]
    operators += [Operator(kind=kind, dims=dims, calls=A, backward_calls=A, of_vocabulary=True) for kind, dims in ends]
    if not fused and step.precision in ("bf16", "fp16"):
        casts = 2 * L * (again + 1) + 2
        operators.append(Operator(kind="residual", dims=(n, d), calls=CAST * A * casts, backward_calls=0))
    # Gradients that are added to others: where a block's stream forks (eagerly), of a tied head, and of every
    # micro-batch after the first.
    sizes = parameter_sizes(shape)
    added = {} if fused else {n * d: 2 * A * L}
    if not llama:
        added[V * d] = added.get(V * d, 0) + A
    for size, count in sizes.items():
        added[size] = added.get(size, 0) + count * (A - 1)
    operators += [
        Operator(kind="residual", dims=(1, size), calls=count, backward_calls=0)
        for size, count in added.items() if count
    ]  # fmt: skip
    operators += [
        Operator(kind="optimizer", dims=(size,), calls=count, backward_calls=0) for size, count in sizes.items()
    ]
    return operators


def has_head_loss(shape: ModelShape, step: StepSpec, device_type: DeviceType) -> bool:
    """Whether head and loss are one operation, `head_loss`, which leaves the gradient where the logits were."""
    compiled_on_cuda = device_type == "cuda" and step.execution != "eager"
    return compiled_on_cuda and shape.vocab_size >= LARGE_VOCABULARY and step.precision != "fp16"


def parameter_sizes(shape: ModelShape) -> dict[int, int]:
    """Gives how many parameters (tensors) there are of each number of elements."""
    count, sizes = count_parameters(shape), {}
    tensors = [(rows * columns, shape.n_layer) for rows, columns in block_matrices(shape)]
    tensors += [(length, shape.n_layer) for length in block_vectors(shape)]
    tensors += [(size, 1) for size in (count.token_embedding, count.position_embedding, count.head) if size]
    tensors += [(shape.n_embd, 2 if shape.architecture == "gpt2" and shape.bias else 1)]
    for size, how_many in tensors:
        sizes[size] = sizes.get(size, 0) + how_many
    return sizes


def elements(kind: Kind, dims: tuple[int, ...]) -> int:
    """Gives the elements that an operator works on: of its output, or for `embedding` of output and table."""
    if kind == "linear":
        return dims[0] * dims[2]
    if kind == "embedding":
        return dims[0] * dims[2] + dims[1] * dims[2]
    return math.prod(dims)


def flops(kind: Kind, dims: tuple[int, ...], direction: Direction) -> float:
    """Counts the FLOPs of the products of one call, 0 for all others.

    Backward attention computes QKᵀ again: 2.5 times forward (FlashAttention, Dao et al. 2022, arXiv 2205.14135).
    """
    if kind == "linear":
        return 2.0 * math.prod(dims) * (1 if direction == "forward" else 2)
    if kind == "attention":
        sequences, heads, length, size = dims
        return 4.0 * sequences * heads * length**2 * size * (1 if direction == "forward" else 2.5)
    return 0.0


def moved_bytes(kind: Kind, dims: tuple[int, ...], direction: Direction, element_bytes: int) -> float:
    """Counts the bytes that one call reads and writes eagerly, each tensor once."""
    backward = direction == "backward"
    if kind == "linear":
        rows, inputs, outputs = dims
        once = rows * inputs + inputs * outputs + rows * outputs
        return float(element_bytes * once * (2 if backward else 1))
    if kind == "attention":
        return float(element_bytes * math.prod(dims) * (8 if backward else 4))
    size = 4 if kind in ("optimizer", "loss", "embedding") else element_bytes
    return float(size * elements(kind, dims) * PASSES[kind][backward])


def fused_bytes(operator: Operator, direction: Direction, step: StepSpec, head_loss: bool = False) -> float | None:
    """Counts the bytes that a compiler leaves of one call; None for what it does not fuse with others.

    Args:
        operator: which.
        direction: forward or backward.
        step: types and execution of the step.
        head_loss: whether head and loss are one operation, see `has_head_loss`.
    """
    kind, dims, backward = operator.kind, operator.dims, direction == "backward"
    if step.execution == "eager":
        return None
    stream, product = residual_bytes(step), element_bytes(step)
    if kind == "embedding":  # read with the first block's; its gradient is a table of zeros, to which rows are added
        rows, entries, width = dims
        return float(4 * entries * width + rows * width * (stream + 8)) if backward else 0.0
    if kind not in FUSED_PASSES:
        return None
    passes = HEAD_LOSS_PASSES if kind == "loss" and head_loss else FUSED_PASSES[kind]
    of_stream, of_products = passes[backward]
    return float((of_stream * stream + of_products * product) * elements(kind, dims))


def call_bytes(operator: Operator, direction: Direction, step: StepSpec) -> float:
    """Counts the bytes that one call of a step moves, as it is executed."""
    fused = fused_bytes(operator, direction, step)
    return moved_bytes(operator.kind, operator.dims, direction, element_bytes(step)) if fused is None else fused


def cost_rows(calibration: dict[str, Any]) -> list[dict[str, Any]]:
    """The operators that a calibration measured; kinds that only another version of Assay knows are left out."""
    known = [cost for cost in calibration.get("operators") or () if cost["kind"] in (*PRODUCTS, *PASSES)]
    return [cost_row(calibration["device"], cost) for cost in known]


def cost_row(device: str, cost: dict[str, Any]) -> dict[str, Any]:
    """A measured operator as a row of operator_costs.csv, with its work."""
    kind, dims, direction = cost["kind"], tuple(cost["dims"]), cost["direction"]
    work = flops(kind, dims, direction)
    element = 2 if cost["precision"] in ("bf16", "fp16") and kind not in ALWAYS_FP32 else 4
    moved = moved_bytes(kind, dims, direction, element)
    rates = {"flop_per_s": work / cost["seconds"] or None, "bytes_per_s": moved / cost["seconds"] or None}
    row = {**cost, "device": device, "dims": "×".join(map(str, dims))}
    return {**row, "flops": work, "moved_bytes": moved, **rates}
