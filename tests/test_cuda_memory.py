"""The memory of a step on CUDA in closed form, against what steps took on an H100 SXM5 80 GB with torch 2.11.0+cu130.

Measured by `measure_cell` and `probe_allocated`, one process for each; tokens and windows took `data` bytes.
"""

import dataclasses

import pytest

from tests.test_counts import shape
from tests.tiny_run import ADAMW
from workflow_scripts.lib.cuda_allocator import MIB, allocated_bytes
from workflow_scripts.lib.memory_model import MemoryEstimate, estimate_memory, product_workspace_bytes
from workflow_scripts.lib.specs import ModelShape, StepSpec

STEP = StepSpec(batch_size=4, precision="fp32", execution="eager")
CHARACTERS = {"vocab_size": 66, "sequence_length": 256, "bias": False}
NARROW, MIDDLE, BROAD = (shape("gpt2", 4, 4, width, **CHARACTERS) for width in (64, 128, 192))
WORDS = {"vocab_size": 10_000, "sequence_length": 512}
SMALL, MEDIUM = shape("llama", 12, 12, 768, **WORDS), shape("llama", 24, 16, 1024, **WORDS)


def estimated(of: ModelShape, mode="step", data=0, **step) -> MemoryEstimate:
    changed = dataclasses.replace(STEP, **step)
    return estimate_memory(of, changed, ADAMW, "cuda", resident_bytes=data, mode=mode, compute_capability="9.0")


@pytest.mark.parametrize(
    ("of", "step", "measured", "within"),
    [
        (NARROW, {"batch_size": 1, "data": 3_733_748}, 78_129_664, 0.001),
        (MIDDLE, {"mode": "forward", "data": 3_757_748}, 76_406_272, 0.01),
        (MIDDLE, {"mode": "forward_backward", "data": 3_757_748}, 111_280_640, 0.01),
        (BROAD, {"data": 3_757_748}, 148_678_144, 0.01),
        (BROAD, {"precision": "bf16", "data": 3_757_748}, 127_995_904, 0.001),
        (
            MIDDLE,
            {"batch_size": 16, "precision": "bf16", "execution": "compiled", "data": 3_853_748},
            201_383_936,
            0.01,
        ),
        (MIDDLE, {"batch_size": 16, "precision": "bf16", "execution": "graphed", "data": 3_853_748}, 234_938_368, 0.01),
        (SMALL, {"mode": "forward", "data": 3_520_096}, 2_694_100_480, 0.001),
        (SMALL, {"batch_size": 16, "data": 3_616_096}, 10_506_795_520, 0.001),
        (SMALL, {"precision": "bf16", "execution": "compiled", "data": 3_520_096}, 2_805_364_736, 0.02),
        (SMALL, {"execution": "graphed", "data": 3_520_096}, 3_501_040_128, 0.02),
        (MEDIUM, {"batch_size": 16, "precision": "bf16", "data": 3_616_096}, 18_305_145_856, 0.001),
    ],
)
def test_peak_is_that_of_the_real_step(of, step, measured, within):
    assert estimated(of, **step).peak_bytes == pytest.approx(measured, rel=within)


@pytest.mark.parametrize(
    ("of", "step", "phases"),
    [
        (NARROW, {"data": 3_757_748}, (91_510_272, 91_830_272, 74_399_744)),
        (BROAD, {"data": 3_757_748}, (146_226_688, 148_678_144, 100_243_456)),
        (
            shape("gpt2", 2, 3, 384, vocab_size=8192, sequence_length=512, bias=False),
            {"batch_size": 32, "accumulation": 2, "checkpointing": True, "data": 656_000},
            (766_627_840, 1_035_062_272, 179_106_816),
        ),
    ],
)
def test_phases_are_those_of_the_real_step(of, step, phases):
    expected = dict(zip(("forward", "backward", "optimizer"), phases, strict=True))
    assert estimated(of, **step).phases == pytest.approx(expected, rel=0.01)


def test_each_thread_and_stream_of_products_has_a_workspace():
    ways = ({"mode": "forward"}, {}, {"execution": "graphed"})
    assert [estimated(NARROW, **way).moments["loss_forward"] // (32 * MIB) for way in ways] == [1, 2, 3]
    biased = dataclasses.replace(NARROW, bias=True)
    taken = [product_workspace_bytes(of, STEP, "cuda", "forward", "9.0") for of in (NARROW, biased)]
    assert taken == [32 * MIB, 33 * MIB]


def test_a_block_of_the_allocator_is_cut_where_more_than_a_mebibyte_is_left():
    assert allocated_bytes((1, 512, 513)) == 512 + 512 + 1024
    assert allocated_bytes((9 * MIB, 9 * MIB)) == 18 * MIB
    assert allocated_bytes((9 * MIB, 9 * MIB, 3 * MIB // 2)) == 20 * MIB  # half a mebibyte goes with the last
    assert allocated_bytes((31 * MIB + 1,)) == 32 * MIB
    assert allocated_bytes((30 * MIB + 1,)) == 30 * MIB + 512
