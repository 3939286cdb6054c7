"""Bytes that an optimizer takes: its state, and what an update needs for a moment. Nothing here imports torch."""

from workflow_scripts.lib.counts import block_matrices, block_vectors
from workflow_scripts.lib.cuda_allocator import allocated_bytes
from workflow_scripts.lib.gpu import UNKNOWN, Gpu
from workflow_scripts.lib.specs import DeviceType, ModelShape, OptimizerSpec


def table_sizes(shape: ModelShape) -> list[int]:
    """Lists the elements of embeddings and head."""
    vocabulary = shape.vocab_size * shape.n_embd
    return [vocabulary, shape.sequence_length * shape.n_embd if shape.architecture == "gpt2" else vocabulary]


def vector_sizes(shape: ModelShape) -> list[int]:
    """Lists the elements of all biases and normalisations."""
    final_norm = [shape.n_embd] * (2 if shape.architecture == "gpt2" and shape.bias else 1)
    return block_vectors(shape) * shape.n_layer + final_norm


def matrix_sizes(shape: ModelShape) -> list[int]:
    """Lists the elements of the blocks' matrices."""
    return [rows * columns for rows, columns in block_matrices(shape)] * shape.n_layer


def parameter_sizes(shape: ModelShape) -> list[int]:
    """Lists the elements of every parameter of `model.Decoder`, matrices and tables in the order of their making."""
    first, last = table_sizes(shape)
    return [first, *matrix_sizes(shape), *vector_sizes(shape), last]


def held_bytes(sizes: list[int], device_type: DeviceType, element: int = 4) -> int:
    """Gives the bytes of tensors of these sizes as the device's allocator counts them."""
    if device_type == "cuda":
        return sum(allocated_bytes(element * size) for size in sizes)
    return element * sum(sizes)


def optimizer_state_bytes(shape: ModelShape, optimizer: OptimizerSpec, device_type: DeviceType) -> int:
    """Gives the bytes of an optimizer's state: float32, of the parameters' size or, for Adafactor, of their sides."""
    sizes, rest = parameter_sizes(shape), table_sizes(shape) + vector_sizes(shape)
    # AdamW counts the steps of each parameter in a tensor of its own: float32, where the update is computed.
    match optimizer.name:
        case "adamw":
            counts = held_bytes([1] * len(sizes), device_type)
            return held_bytes([size for size in sizes for _ in ("mean", "square")], device_type) + counts
        case "sgd":
            return held_bytes(sizes, device_type) if optimizer.momentum else 0
        case "muon":  # AdamW, not fused and so with counts on the host, for all but the blocks' matrices
            counts = 4 * len(rest) if device_type == "cpu" else 0
            return held_bytes(matrix_sizes(shape), device_type) + 2 * held_bytes(rest, device_type) + counts
        case "adafactor":
            sides = [side for both in _sides(shape) for side in both]
            return held_bytes(sides + vector_sizes(shape), device_type)


def _sides(shape: ModelShape) -> list[tuple[int, int]]:
    """Lists rows and columns of all tables and matrices in the order of their update."""
    first = (shape.vocab_size, shape.n_embd)
    last = (shape.sequence_length, shape.n_embd) if shape.architecture == "gpt2" else first
    return [first, *block_matrices(shape) * shape.n_layer, last]


def optimizer_scratch_bytes(
    shape: ModelShape, optimizer: OptimizerSpec, device_type: DeviceType, gpu: Gpu = UNKNOWN
) -> int:
    """Gives the bytes that an update needs for a moment: none where it is one fused kernel (AdamW, SGD)."""
    if optimizer.name in ("adamw", "sgd"):
        return 0
    first, last = table_sizes(shape)
    if optimizer.name == "adafactor":
        return _adafactor_scratch_bytes(shape, device_type, gpu)
    # On the CPU parameters are updated in turn, and what was made for one goes only when the next one's is there.
    newton_schulz = 8 * max(matrix_sizes(shape)) + 4 * shape.n_embd**2
    adamw = max(8 * first, 4 * first + 8 * last) if device_type == "cpu" else 4 * (first + last)
    return max(newton_schulz, adamw)


def _adafactor_scratch_bytes(shape: ModelShape, device_type: DeviceType, gpu: Gpu) -> int:
    """Gives the bytes of an update of one parameter after the other.

    What was made for one goes only when the next one's is there; before that, a GPU sums its gradient over the rows.
    """
    largest = before = 0
    for rows, columns in _sides(shape):
        summing = gpu.sum_bytes(rows, columns) if device_type == "cuda" else 0
        largest = max(largest, before + max(4 * rows * columns, summing))
        before = 4 * rows * columns
    return largest
