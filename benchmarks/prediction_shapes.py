"""Random shapes for the benchmark of predictions: what a person might train, drawn by a seed."""

import math
import random

from workflow_scripts.lib.counts import flops_per_token
from workflow_scripts.lib.specs import DeviceType, ModelShape, Precision, StepSpec
from workflow_scripts.lib.study import complete_shape

# Largest and smallest FLOPs of a step: from about what a launch costs to about half a second.
FLOPS = {"cpu": (5e7, 3e10), "cuda": (1e10, 1e13), "mps": (1e9, 1e12)}
HEAD_SIZES = {"cpu": (8, 16, 24, 32, 48, 64), "cuda": (32, 64, 96, 128), "mps": (32, 64, 128)}
WIDEST = {"cpu": 512, "cuda": 2048, "mps": 1024}
DEEPEST = {"cpu": 16, "cuda": 32, "mps": 24}
LENGTHS = {"cpu": (32, 64, 128, 256, 512), "cuda": (128, 256, 512, 1024, 2048), "mps": (128, 256, 512, 1024)}
BATCHES = {"cpu": (1, 2, 4, 8, 16), "cuda": (1, 2, 4, 8, 16, 32), "mps": (1, 2, 4, 8, 16)}
VOCABULARIES = {"cpu": (65, 256, 1024, 4096, 16384), "cuda": (65, 1024, 10000, 32000, 50304), "mps": (65, 1024, 10000)}


def draw(
    n: int, seed: int, device: DeviceType, precision: Precision, execution: str
) -> list[tuple[ModelShape, StepSpec]]:
    """Draws shapes and batches: log-uniform in depth and width, of both architectures, bounded in FLOPs per step."""
    drawing, drawn = random.Random(seed), []
    low, high = FLOPS[device]
    while len(drawn) < n:
        size = drawing.choice(HEAD_SIZES[device])
        heads = max(1, round(math.exp(drawing.uniform(0, math.log(WIDEST[device] / size)))))
        length = drawing.choice(LENGTHS[device])
        shape = complete_shape(
            {
                "architecture": drawing.choice(("gpt2", "gpt2", "llama")),
                "n_layer": round(math.exp(drawing.uniform(0, math.log(DEEPEST[device])))),
                "n_head": heads,
                "n_embd": heads * size,
                "bias": drawing.choice((True, False)),
            },
            drawing.choice(VOCABULARIES[device]),
            length,
        )
        batch_size = drawing.choice(BATCHES[device])
        if low <= batch_size * length * flops_per_token(shape, length).training <= high:
            drawn.append((shape, StepSpec(batch_size=batch_size, precision=precision, execution=execution)))
    return drawn
