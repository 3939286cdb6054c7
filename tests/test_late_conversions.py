"""Gradients that a processor's compiled step turns into float32 last, against what such steps took with torch 2.13.

Measured by `benchmarks/prediction_memory.py --device cpu --threads 1`, one process for each.
"""

import pytest

from tests.test_tuning_moments import ADAFACTOR, ADAM, MUON, estimated


@pytest.mark.parametrize(
    ("architecture", "sizes", "optimizer", "step", "measured"),
    [
        # The largest matrices' wait where the peak would be higher otherwise,
        ("gpt2", (8, 50, 400, 1024, 64, True, 0.1), ADAM, ("bf16", "compiled", 2, 2, "auto", False), 339_876_704),
        ("gpt2", (13, 14, 448, 1024, 64, False, 0.1), ADAM, ("fp16", "compiled", 1, 1, "auto", False), 553_770_988),
        ("gpt2", (14, 9, 432, 1024, 32, False, 0.0), ADAM, ("fp16", "compiled", 4, 2, "auto", False), 681_006_548),
        ("llama", (13, 7, 336, 65, 64, False, 0.0), ADAFACTOR, ("bf16", "compiled", 4, 1, "auto", False), 157_319_732),
        # not where it would be as low,
        ("gpt2", (11, 20, 480, 256, 64, False, 0.0), ADAM, ("fp16", "compiled", 1, 1, "auto", False), 491_672_988),
        ("gpt2", (14, 8, 384, 65, 32, False, 0.0), MUON, ("bf16", "compiled", 2, 2, "math", False), 398_439_684),
        # and not where the embedding's table is larger than they are, and so is begun last.
        ("gpt2", (12, 7, 448, 16384, 32, False, 0.0), ADAM, ("bf16", "compiled", 1, 1, "auto", False), 625_607_228),
        ("gpt2", (8, 7, 448, 16384, 64, True, 0.0), ADAM, ("fp16", "compiled", 1, 1, "auto", False), 469_086_440),
    ],
)  # fmt: skip
def test_the_order_of_conversions_is_the_compilers(architecture, sizes, optimizer, step, measured):
    assert estimated(architecture, sizes, optimizer, step, on="cpu").peak_bytes == pytest.approx(measured, rel=0.005)
