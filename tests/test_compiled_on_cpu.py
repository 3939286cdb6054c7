"""The memory of steps that a processor's compiler compiled, in closed form: against what such steps took (torch 2.13).

Measured by `benchmarks/prediction_memory.py --device cpu --threads 1`, one process for each.
"""

import pytest

from tests.test_tuning_moments import ADAFACTOR, ADAM, MUON, PLAIN, SGD, estimated

LATE = [  # gradients that are turned into float32 last
    # The largest matrices' wait where the peak would be higher otherwise,
    ("gpt2", (8, 50, 400, 1024, 64, True, 0.1), ADAM, ("bf16", "compiled", 2, 2, "auto", False), 339_876_704),
    ("gpt2", (13, 14, 448, 1024, 64, False, 0.1), ADAM, ("fp16", "compiled", 1, 1, "auto", False), 553_770_988),
    ("gpt2", (14, 9, 432, 1024, 32, False, 0.0), ADAM, ("fp16", "compiled", 4, 2, "auto", False), 681_006_548),
    ("llama", (13, 7, 336, 65, 64, False, 0.0), ADAFACTOR, ("bf16", "compiled", 4, 1, "auto", False), 157_319_732),
    # where the first block's second matrix is turned into float32 beside what attention kept,
    ("gpt2", (5, 55, 440, 256, 64, False, 0.1), SGD, ("fp16", "compiled", 1, 1, "auto", False), 156_633_352),
    # and so do smaller ones whose conversion adds more than any product: of queries, keys and values, then all.
    ("gpt2", (9, 5, 320, 65, 128, True, 0.0), ADAM, ("fp16", "compiled", 2, 2, "auto", False), 243_465_768),
    ("gpt2", (9, 7, 336, 65, 256, True, 0.0), ADAM, ("fp16", "compiled", 1, 1, "auto", False), 221_846_056),
    ("gpt2", (10, 7, 336, 65, 32, False, 0.1), ADAM, ("fp16", "compiled", 4, 1, "auto", False), 242_238_580),
    # None does where the peak would be as low,
    ("gpt2", (11, 20, 480, 256, 64, False, 0.0), ADAM, ("fp16", "compiled", 1, 1, "auto", False), 491_672_988),
    ("gpt2", (16, 15, 360, 256, 32, True, 0.1), ADAM, ("bf16", "compiled", 2, 1, "math", False), 402_731_216),
    ("gpt2", (14, 8, 384, 65, 32, False, 0.0), MUON, ("bf16", "compiled", 2, 2, "math", False), 398_439_684),
    # or one of an order that lets go earlier what is held for biases,
    ("gpt2", (6, 15, 480, 65, 64, True, 0.1), SGD, ("fp16", "compiled", 4, 2, "math", False), 270_406_328),
    # nor where the embedding's table is larger than they are, and so is begun last.
    ("gpt2", (12, 7, 448, 16384, 32, False, 0.0), ADAM, ("bf16", "compiled", 1, 1, "auto", False), 625_607_228),
    ("gpt2", (8, 7, 448, 16384, 64, True, 0.0), ADAM, ("fp16", "compiled", 1, 1, "auto", False), 469_086_440),
]  # fmt: skip
CONVERTED = [  # the gradient of llama's first matrix of an MLP, as the product gives it and in float32
    ("llama", (8, 15, 360, 256, 32, False, 0.0), ADAM, ("bf16", "compiled", 8, 2, "auto", False), 254_196_124),
]  # fmt: skip
ATTENTION = [  # plain
    # In half precision with dropout what its softmax is computed again from, its mask,
    ("gpt2", (12, 6, 192, 256, 256, True, 0.1), PLAIN, ("bf16", "compiled", 1, 1, "auto", False), 78_451_892),
    ("gpt2", (4, 3, 96, 1024, 512, True, 0.1), MUON, ("bf16", "compiled", 8, 2, "auto", False), 120_416_736),
    ("gpt2", (2, 2, 64, 256, 256, False, 0.0), ADAM, ("bf16", "compiled", 16, 2, "math", False), 23_018_544),
    # and in fp16 a tensor of the block before.
    ("llama", (4, 5, 80, 4096, 512, False, 0.1), ADAFACTOR, ("fp16", "compiled", 4, 1, "auto", False), 175_870_464),
]  # fmt: skip
HEAD = [
    # A tied head's gradient comes last, and until then logits and what the head read stay.
    ("gpt2", (7, 1, 64, 16384, 256, False, 0.0), ADAFACTOR, ("fp32", "compiled", 8, 1, "auto", False), 201_014_860),
    ("gpt2", (13, 1, 64, 16384, 256, False, 0.0), ADAM, ("fp32", "compiled", 4, 1, "auto", False), 143_350_756),
    # Another head's comes first.
    ("llama", (1, 4, 192, 1024, 256, False, 0.0), PLAIN, ("fp32", "compiled", 16, 1, "auto", False), 84_123_856),
]  # fmt: skip
MLP = [
    # With biases what a matrix read has a gradient before the matrix has.
    ("gpt2", (3, 1, 48, 16384, 512, True, 0.0), ADAM, ("fp32", "compiled", 8, 1, "auto", False), 322_748_000),
    ("gpt2", (10, 8, 128, 1024, 256, True, 0.1), ADAM, ("fp32", "compiled", 4, 2, "auto", False), 176_338_528),
    ("gpt2", (8, 8, 256, 256, 32, True, 0.1), ADAM, ("fp16", "compiled", 16, 1, "auto", False), 137_396_072),
    # The last block's tensors wait for the block before.
    ("gpt2", (3, 9, 432, 65, 32, False, 0.1), ADAFACTOR, ("fp32", "compiled", 16, 1, "math", False), 81_470_192),
]  # fmt: skip
ROUGHER = [
    # One sequence's mask is made again.
    ("gpt2", (2, 7, 168, 256, 512, True, 0.0), ADAM, ("bf16", "compiled", 2, 2, "math", False), 40_955_168),
    # An only block takes no scores over from one before.
    ("gpt2", (1, 15, 120, 4096, 512, False, 0.1), ADAM, ("fp32", "compiled", 8, 2, "auto", False), 208_773_220),
    # What dropout leaves of the gradient comes with it, and its mask goes.
    ("gpt2", (2, 2, 96, 65, 512, False, 0.1), ADAFACTOR, ("fp32", "compiled", 16, 2, "auto", False), 139_560_840),
    ("gpt2", (2, 14, 448, 1024, 512, False, 0.1), MUON, ("fp32", "compiled", 1, 1, "auto", False), 155_243_620),
]  # fmt: skip


@pytest.mark.parametrize(
    ("architecture", "sizes", "optimizer", "step", "measured", "within"),
    [(*one, 0.002) for one in [*CONVERTED, *ATTENTION, *HEAD, *MLP]]
    + [(*one, 0.0028) for one in ROUGHER]
    + [(*one, 0.0055) for one in LATE],
)
def test_the_peak_is_the_compilers(architecture, sizes, optimizer, step, measured, within):
    said = estimated(architecture, sizes, optimizer, step, on="cpu")
    assert said.peak_bytes == pytest.approx(measured, rel=within)
