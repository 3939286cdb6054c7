"""Gradients that a processor's compiled step turns into float32 last, against what such steps took with torch 2.13.

Measured by `benchmarks/prediction_memory.py --device cpu --threads 1`, one process for each.
"""

import dataclasses

import pytest

from tests.test_counts import shape
from tests.tiny_run import ADAMW
from workflow_scripts.lib.counts import default_inner
from workflow_scripts.lib.memory_model import MemoryEstimate, estimate_memory
from workflow_scripts.lib.specs import StepSpec


def estimated(architecture, sizes, optimizer, step) -> MemoryEstimate:
    n_layer, n_head, n_embd, vocab_size, length, bias, dropout = sizes
    of = shape(
        architecture, n_layer, n_head, n_embd, n_inner=default_inner(architecture, n_embd), vocab_size=vocab_size,
        sequence_length=length, bias=bias, dropout=dropout,
    )  # fmt: skip
    precision, batch_size, accumulation, attention = step
    asked = StepSpec(
        batch_size=batch_size, precision=precision, execution="compiled", accumulation=accumulation, attention=attention
    )
    return estimate_memory(of, asked, dataclasses.replace(ADAMW, name=optimizer, momentum=0.95), "cpu", threads=1)


@pytest.mark.parametrize(
    ("architecture", "sizes", "optimizer", "step", "measured"),
    [
        # The largest matrices' wait where the peak would be higher otherwise,
        ("gpt2", (8, 50, 400, 1024, 64, True, 0.1), "adamw", ("bf16", 2, 2, "auto"), 339_876_704),
        ("gpt2", (13, 14, 448, 1024, 64, False, 0.1), "adamw", ("fp16", 1, 1, "auto"), 553_770_988),
        ("gpt2", (14, 9, 432, 1024, 32, False, 0.0), "adamw", ("fp16", 4, 2, "auto"), 681_006_548),
        ("llama", (13, 7, 336, 65, 64, False, 0.0), "adafactor", ("bf16", 4, 1, "auto"), 157_319_732),
        # not where it would be as low,
        ("gpt2", (11, 20, 480, 256, 64, False, 0.0), "adamw", ("fp16", 1, 1, "auto"), 491_672_988),
        ("gpt2", (14, 8, 384, 65, 32, False, 0.0), "muon", ("bf16", 2, 2, "math"), 398_439_684),
        # and not where the embedding's table is larger than they are, and so is begun last.
        ("gpt2", (12, 7, 448, 16384, 32, False, 0.0), "adamw", ("bf16", 1, 1, "auto"), 625_607_228),
        ("gpt2", (8, 7, 448, 16384, 64, True, 0.0), "adamw", ("fp16", 1, 1, "auto"), 469_086_440),
    ],
)  # fmt: skip
def test_the_order_of_conversions_is_the_compilers(architecture, sizes, optimizer, step, measured):
    assert estimated(architecture, sizes, optimizer, step).peak_bytes == pytest.approx(measured, rel=0.005)
