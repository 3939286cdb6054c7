"""Bytes that an optimizer takes: its state, and what an update needs for a moment. Nothing here imports torch."""

from workflow_scripts.lib.counts import block_matrices, block_vectors, count_parameters
from workflow_scripts.lib.specs import DeviceType, ModelShape, OptimizerSpec

CUDA_GRAIN = 512  # the least that CUDA's caching allocator gives, and the multiple that it rounds to


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
    """Lists the elements of every parameter of `model.Decoder`."""
    return table_sizes(shape) + vector_sizes(shape) + matrix_sizes(shape)


def held_bytes(sizes: list[int], device_type: DeviceType, element: int = 4) -> int:
    """Gives the bytes of tensors of these sizes as the device's allocator counts them."""
    grain = CUDA_GRAIN if device_type == "cuda" else 1
    return sum(-(-element * size // grain) * grain for size in sizes)


def optimizer_state_bytes(shape: ModelShape, optimizer: OptimizerSpec, device_type: DeviceType) -> int:
    """Gives the bytes of an optimizer's state: float32, of the parameters' size or, for Adafactor, of their sides."""
    sizes, rest = parameter_sizes(shape), table_sizes(shape) + vector_sizes(shape)
    # AdamW counts the steps of each parameter in a tensor of its own: float32, where the update is computed.
    match optimizer.name:
        case "adamw":
            return 2 * held_bytes(sizes, device_type) + held_bytes([1] * len(sizes), device_type)
        case "sgd":
            return held_bytes(sizes, device_type) if optimizer.momentum else 0
        case "muon":  # AdamW, not fused and so with counts on the host, for all but the blocks' matrices
            counts = 4 * len(rest) if device_type == "cpu" else 0
            return held_bytes(matrix_sizes(shape), device_type) + 2 * held_bytes(rest, device_type) + counts
        case "adafactor":
            sides = [(shape.vocab_size, shape.n_embd)] * (1 if shape.architecture == "gpt2" else 2)
            sides += [(shape.sequence_length, shape.n_embd)] if shape.architecture == "gpt2" else []
            sides += block_matrices(shape) * shape.n_layer
            return held_bytes([side for both in sides for side in both] + vector_sizes(shape), device_type)


def optimizer_scratch_bytes(shape: ModelShape, optimizer: OptimizerSpec, device_type: DeviceType) -> int:
    """Gives the bytes that an update needs for a moment: none where it is one fused kernel (AdamW, SGD)."""
    if optimizer.name in ("adamw", "sgd"):
        return 0
    count = count_parameters(shape)
    *_, up, down = (rows * columns for rows, columns in block_matrices(shape))
    vocabulary = shape.vocab_size * shape.n_embd
    if optimizer.name == "adafactor":  # on the CPU one parameter after the other, elsewhere all at once
        return 4 * (max(vocabulary, up + down) if device_type == "cpu" else count.total)
    newton_schulz = 8 * max(up, down) + 4 * shape.n_embd**2
    # On the CPU AdamW's loop makes two tensors for a parameter and keeps the last one's until they are there.
    loop = (12 if count.head else 8) * vocabulary
    return max(newton_schulz, loop if device_type == "cpu" else 4 * (count.total - count.non_embedding))
