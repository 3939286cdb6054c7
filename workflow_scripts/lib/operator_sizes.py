"""Which sizes of which operators a calibration measures: few, but from the smallest to the largest that matter.

Between them rates are interpolated, beyond them the nearest holds (`operator_rates`). So the corners of each kind come
first, small ones before large ones, and then what lies inside, as far as the time reaches: first products, of which a
step has most.
"""

import itertools
import math
from collections.abc import Iterator

from workflow_scripts.lib.specs import DeviceType, Precision

LARGEST = {"cpu": 2**24, "cuda": 2**30, "mps": 2**27}  # elements of one operator's output
ROWS = {"cpu": (32, 128, 512, 2048), "cuda": (512, 4096, 32768), "mps": (128, 1024, 8192)}
WIDTHS = {"cpu": (8, 32, 64, 128, 512), "cuda": (128, 512, 2048), "mps": (64, 256, 1024)}
OUTPUTS = {"cpu": (32, 128, 512, 2048), "cuda": (128, 1024, 8192), "mps": (64, 512, 4096)}
HEADS = {  # rows, inputs, outputs of products whose result is large: of a vocabulary
    "cpu": tuple(itertools.product((32, 256, 1024), (32, 128, 512), (16384,))),
    "cuda": ((512, 1024, 50304), (4096, 256, 50304), (16384, 1024, 50304)),
    "mps": ((128, 256, 50304), (2048, 256, 50304)),
}
# A GPU takes few sequences hardly longer than one, and may treat a head size as the next larger one.
HEADS_OF_SEQUENCES = {"cpu": (1, 4, 32), "cuda": (8, 64, 256), "mps": (4, 64)}
LENGTHS = {"cpu": (32, 128, 256, 512), "cuda": (128, 512, 2048), "mps": (64, 256, 1024)}
HEAD_SIZES = {"cpu": (8, 16, 32, 64), "cuda": (32, 64, 96, 128), "mps": (32, 64, 128)}
VOCABULARY_ROWS = {"cpu": (64, 512, 2048), "cuda": (512, 4096, 16384), "mps": (128, 1024, 4096)}
VOCABULARIES = {"cpu": (64, 1024, 4096, 16384), "cuda": (64, 2048, 50304), "mps": (64, 2048, 50304)}
# What works on float32 in a step of every precision; a calibration measures it once, in fp32.
ALWAYS_FP32 = ("layer_norm", "rms_norm", "embedding", "optimizer")
PARAMETERS = {
    "cpu": (2**6, 2**10, 2**14, 2**17, 2**20),
    "cuda": (2**10, 2**16, 2**20, 2**24),
    "mps": (2**10, 2**16, 2**21),
}

Dims = tuple[int, ...]


def sizes(device: DeviceType, precision: Precision = "fp32") -> list[tuple[bool, str, Dims]]:
    """Lists what is measured on a type of device in a precision, in order.

    Each is whether its size lies inside, between others of its kind; the kind; its `dims` (`operator_work.Operator`).
    """
    rows, widths, heads, lengths, head_sizes, vocabulary_rows, vocabularies = (
        axis[device] for axis in (ROWS, WIDTHS, HEADS_OF_SEQUENCES, LENGTHS, HEAD_SIZES, VOCABULARY_ROWS, VOCABULARIES)
    )
    flat, ends = [rows, widths[:: len(widths) - 1]], head_sizes[-1:]
    wide = [rows, tuple(4 * width for width in flat[1])]
    sums = [rows, (flat[1][0], wide[1][1])]  # up to what no cache holds: the gradients of a vocabulary are added, too
    points = [(inner, "linear", dims) for inner, dims in _grid(rows, widths, OUTPUTS[device])]
    points += [(False, "linear", dims) for dims in HEADS[device]]
    points += [(inner, "attention", _split(dims)) for inner, dims in _grid(heads, lengths, head_sizes)]
    points += [(inner, "rotary", _split(dims)) for inner, dims in _grid(heads, lengths, ends)]
    for names, axes in (
        (("layer_norm", "rms_norm", "bias"), flat),
        (("residual",), sums),
        (("gelu", "swiglu"), wide),
        (("loss",), [vocabulary_rows, vocabularies]),
        (("embedding",), [vocabulary_rows, vocabularies, (widths[1], widths[-1])]),
        (("optimizer",), [PARAMETERS[device]]),
    ):
        points += [(inner, name, dims) for name in names for inner, dims in _grid(*axes)]
    kept = [
        point
        for point in points
        if result_elements(*point[1:]) <= LARGEST[device] and (precision == "fp32" or point[1] not in ALWAYS_FP32)
    ]
    return sorted(kept, key=lambda point: (point[0], point[0] and point[1] != "linear", _work(*point[1:])))


def _grid(*axes: tuple[int, ...]) -> Iterator[tuple[bool, Dims]]:
    """All combinations of sizes, and whether one lies between others."""
    for dims in itertools.product(*axes):
        yield any(size not in (axis[0], axis[-1]) for size, axis in zip(dims, axes, strict=True)), dims


def _split(dims: Dims) -> Dims:
    """Heads of all sequences as sequences of four heads each, or one of fewer."""
    heads = min(4, dims[0])
    return (dims[0] // heads, heads, *dims[1:])


def result_elements(name: str, dims: Dims) -> int:
    """Gives the elements of an operator's result, for products and embeddings with their table."""
    if name in ("linear", "embedding"):
        return dims[0] * dims[2] + dims[1] * dims[2]
    return math.prod(dims)


def _work(name: str, dims: Dims) -> int:
    """FLOPs, roughly."""
    if name == "attention":
        return math.prod(dims) * dims[2]
    return math.prod(dims) if name == "linear" else 64 * result_elements(name, dims)
