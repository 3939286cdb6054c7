"""Which sizes of which operators a calibration measures: few, but from the smallest to the largest that matter.

Between them rates are interpolated, beyond them the nearest holds (`operator_rates`), so that reaching far is worth
more than lying close.
"""

import itertools
import math
from collections.abc import Iterator

from workflow_scripts.lib.specs import DeviceType

LARGEST = {"cpu": 2**25, "cuda": 2**30, "mps": 2**27}  # elements of one operator's output
ROWS = {"cpu": (64, 512, 4096), "cuda": (512, 4096, 32768), "mps": (128, 1024, 8192)}
WIDTHS = {"cpu": (32, 512), "cuda": (128, 2048), "mps": (64, 1024)}
PRODUCTS = {  # inputs and outputs of a product, for each number of rows
    "cpu": tuple(itertools.product((32, 128, 512), (32, 128, 512, 2048))),
    "cuda": ((128, 128), (2048, 128), (512, 512), (128, 2048), (512, 2048), (2048, 8192)),
    "mps": tuple(itertools.product((64, 1024), (64, 512, 4096))),
}
HEADS = {  # rows, inputs, outputs of products whose result is large: of a vocabulary
    "cpu": ((64, 64, 16384), (512, 32, 16384), (512, 256, 16384), (2048, 32, 16384)),
    "cuda": ((512, 1024, 50304), (4096, 256, 50304), (16384, 1024, 50304)),
    "mps": ((128, 256, 50304), (2048, 256, 50304)),
}
SEQUENCES = {"cpu": (4, 64), "cuda": (8, 256), "mps": (4, 64)}  # sequences times heads
LENGTHS = {"cpu": (32, 128, 512), "cuda": (128, 512, 2048), "mps": (64, 256, 1024)}
HEAD_SIZES = {"cpu": (8, 32, 64), "cuda": (32, 128), "mps": (32, 128)}
VOCABULARY_ROWS = {"cpu": (64, 512, 2048), "cuda": (512, 4096, 32768), "mps": (128, 1024, 4096)}
VOCABULARIES = {"cpu": (64, 1024, 16384), "cuda": (64, 2048, 50304), "mps": (256, 4096, 50304)}
PARAMETERS = {"cpu": (2**8, 2**14, 2**18, 2**21), "cuda": (2**10, 2**16, 2**20, 2**24), "mps": (2**10, 2**16, 2**21)}


def sizes(kind: DeviceType) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Gives what is measured on a type of device, in ascending size within each kind of operator."""
    rows, width = ROWS[kind], max(WIDTHS[kind]) // 4
    flat = tuple(itertools.product(rows, WIDTHS[kind]))
    heads = tuple(
        (bh // 4, 4, t, d) for bh, t, d in itertools.product(*(s[kind] for s in (SEQUENCES, LENGTHS, HEAD_SIZES)))
    )
    vocabulary = tuple(itertools.product(VOCABULARY_ROWS[kind], VOCABULARIES[kind]))
    points: list[tuple[str, tuple[int, ...]]] = []
    points += [("linear", (m, *matrix)) for m in rows for matrix in PRODUCTS[kind]]
    points += [("linear", dims) for dims in HEADS[kind]]
    points += [("attention", dims) for dims in heads]
    points += [("rotary", dims) for dims in heads if dims[3] == HEAD_SIZES[kind][-1]]
    points += [(name, dims) for name in ("layer_norm", "rms_norm", "residual") for dims in flat]
    points += [(name, (m, 4 * d)) for name in ("gelu", "swiglu") for m, d in flat]
    points += [("loss", dims) for dims in vocabulary]
    points += [("embedding", (*dims, width)) for dims in vocabulary]
    points += [("optimizer", (size,)) for size in PARAMETERS[kind]]
    order = {name: place for place, name in enumerate(dict.fromkeys(name for name, _ in points))}
    kept = [(name, dims) for name, dims in points if _elements(name, dims) <= LARGEST[kind]]
    return iter(sorted(kept, key=lambda point: (_work(*point), order[point[0]])))


def _elements(name: str, dims: tuple[int, ...]) -> int:
    if name in ("linear", "embedding"):
        return dims[0] * dims[2] + dims[1] * dims[2]
    return math.prod(dims)


def _work(name: str, dims: tuple[int, ...]) -> int:
    """FLOPs, roughly: what orders the sizes, so that a device runs out of time at large ones."""
    if name == "attention":
        return math.prod(dims) * dims[2]
    return math.prod(dims) if name == "linear" else 64 * _elements(name, dims)
