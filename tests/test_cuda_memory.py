"""The memory of a step on CUDA in closed form, against what steps took on an H100 SXM5 80 GB and an H200,
with torch 2.11.0+cu130.

On the H100 measured by `measure_cell` and `probe_allocated`, one process for each; tokens and windows took `data`
bytes. On the H200 by `benchmarks/prediction_sides.py`.
"""

import dataclasses

import pytest

from tests.test_counts import shape
from tests.tiny_run import ADAMW
from workflow_scripts.lib.counts import default_inner
from workflow_scripts.lib.cuda_allocator import MIB, allocated_bytes
from workflow_scripts.lib.gpu import Gpu
from workflow_scripts.lib.memory_model import MemoryEstimate, estimate_memory, product_workspace_bytes
from workflow_scripts.lib.specs import ModelShape, StepSpec

H100, H200 = (Gpu(name=name, compute_capability="9.0") for name in ("NVIDIA H100 80GB HBM3", "NVIDIA H200"))
STEP = StepSpec(batch_size=4, precision="fp32", execution="eager")
CHARACTERS = {"vocab_size": 66, "sequence_length": 256, "bias": False}
NARROW, MIDDLE, BROAD = (shape("gpt2", 4, 4, width, **CHARACTERS) for width in (64, 128, 192))
WORDS = {"vocab_size": 10_000, "sequence_length": 512}
SMALL, MEDIUM = shape("llama", 12, 12, 768, **WORDS), shape("llama", 24, 16, 1024, **WORDS)


def estimated(of: ModelShape, mode="step", data=0, gpu=H100, **step) -> MemoryEstimate:
    changed = dataclasses.replace(STEP, **step)
    return estimate_memory(of, changed, ADAMW, "cuda", resident_bytes=data, mode=mode, gpu=gpu)


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
        (SMALL, {"precision": "bf16", "execution": "compiled", "data": 3_520_096}, 2_805_364_736, 0.025),
        (SMALL, {"execution": "graphed", "data": 3_520_096}, 3_501_040_128, 0.02),
        (MEDIUM, {"batch_size": 16, "precision": "bf16", "data": 3_616_096}, 18_305_145_856, 0.001),
    ],
)
def test_peak_is_that_of_the_real_step(of, step, measured, within):
    assert estimated(of, **step).peak_bytes == pytest.approx(measured, rel=within)


@pytest.mark.parametrize(
    ("architecture", "n_layer", "n_head", "n_embd", "vocab_size", "sequence_length", "bias", "step", "measured"),
    [
        # Sums of biases' gradients: for each block that sums its 128 columns.
        ("gpt2", 3, 8, 768, 65, 128, True, ("bf16", "eager", 32), 817_577_984),
        ("gpt2", 3, 1, 96, 65, 2048, True, ("bf16", "eager", 16), 512_929_792),
        ("gpt2", 2, 23, 1472, 1024, 128, True, ("bf16", "eager", 16), 1_183_921_152),
        ("gpt2", 2, 23, 1472, 1024, 128, True, ("fp32", "eager", 16), 1_264_540_160),
        # The gradient of a tied head, beside the embedding's.
        ("gpt2", 2, 13, 1248, 32000, 1024, False, ("fp16", "compiled", 1), 1_570_025_984),
        ("gpt2", 2, 13, 1248, 32000, 1024, False, ("bf16", "compiled", 1), 1_566_414_848),
        ("gpt2", 2, 13, 1248, 32000, 1024, False, ("tf32", "compiled", 1), 1_506_358_272),
        # Head and loss as one: the head's weight goes before its gradient comes.
        ("gpt2", 5, 2, 192, 32000, 2048, False, ("bf16", "compiled", 8), 1_765_408_256),
        ("llama", 2, 1, 96, 32000, 128, False, ("bf16", "compiled", 8), 224_844_800),
        # The compiler's wiping of the cache.
        ("gpt2", 1, 3, 192, 65, 512, False, ("bf16", "compiled", 16), 200_688_640),
    ],
)
def test_peak_on_an_h200_is_that_of_the_real_step(
    architecture, n_layer, n_head, n_embd, vocab_size, sequence_length, bias, step, measured
):
    inner = default_inner(architecture, n_embd)
    sizes = {"n_inner": inner, "vocab_size": vocab_size, "sequence_length": sequence_length, "bias": bias}
    of = shape(architecture, n_layer, n_head, n_embd, **sizes)
    precision, execution, batch_size = step
    data = 4 * 200_000 + 8 * 100 * batch_size  # int32 tokens, and where windows begin
    found = estimated(of, data=data, gpu=H200, precision=precision, execution=execution, batch_size=batch_size)
    assert found.peak_bytes == pytest.approx(measured, rel=0.0125)


@pytest.mark.parametrize(
    ("architecture", "sizes", "optimizer", "step", "data", "measured"),
    [
        # Plain products: torch looks for rows of scores that see nothing, and has a tensor of them more.
        ("gpt2", (2, 8, 768, 65, 2048, True, 0.0), "adafactor", ("fp32", 16), 528_000, 13_106_890_752),
        ("gpt2", (14, 3, 288, 1024, 2048, True, 0.0), "adamw", ("fp16", 4), 432_000, 5_050_655_232),
        ("gpt2", (11, 21, 1344, 1024, 512, True, 0.0), "adamw", ("tf32", 8), 464_000, 9_200_438_272),
        ("llama", (1, 13, 1248, 1024, 256, False, 0.0), "sgd", ("fp32", 2), 416_000, 343_027_200),
        ("gpt2", (2, 8, 768, 65, 2048, True, 0.1), "adamw", ("bf16", 4), 432_000, 4_076_391_936),
        # Adafactor's sums over the rows of a gradient: the embedding's.
        ("gpt2", (4, 9, 1152, 10000, 128, False, 0.0), "adafactor", ("bf16", 1), 408_000, 767_109_120),
    ],
)
def test_peak_of_plain_attention_and_of_other_optimizers(architecture, sizes, optimizer, step, data, measured):
    n_layer, n_head, n_embd, vocab_size, length, bias, dropout = sizes
    of = shape(
        architecture, n_layer, n_head, n_embd, n_inner=default_inner(architecture, n_embd), vocab_size=vocab_size,
        sequence_length=length, bias=bias, dropout=dropout,
    )  # fmt: skip
    chosen = dataclasses.replace(ADAMW, name=optimizer, momentum=0.9)
    asked = dataclasses.replace(STEP, precision=step[0], batch_size=step[1], attention="math")
    found = estimate_memory(of, asked, chosen, "cuda", resident_bytes=data, gpu=H200)
    assert found.peak_bytes == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize(
    ("sizes", "optimizer", "step", "measured", "within"),
    [
        # Without a bias gelu's output is gone when its gradient comes; in full precision what a tied head's gradient is
        # made of stays to the end.
        ((2, 9, 1152, 65, 1024, False), "muon", ("tf32", 2), 3_210_933_760, 0.005),
        ((2, 21, 672, 1024, 1024, False), "adamw", ("fp32", 1), 3_543_283_200, 0.005),
        ((1, 2, 192, 1024, 2048, True), "adamw", ("tf32", 2), 803_890_688, 0.04),
    ],
)
def test_a_compiled_backward_pass_has_the_compilers_order(sizes, optimizer, step, measured, within):
    n_layer, n_head, n_embd, vocab_size, length, bias = sizes
    of = shape("gpt2", n_layer, n_head, n_embd, vocab_size=vocab_size, sequence_length=length, bias=bias)
    chosen = dataclasses.replace(ADAMW, name=optimizer, momentum=0.95)
    asked = dataclasses.replace(STEP, precision=step[0], batch_size=32, accumulation=step[1], execution="compiled")
    found = estimate_memory(of, asked, chosen, "cuda", resident_bytes=656_000, gpu=H200)
    assert found.peak_bytes == pytest.approx(measured, rel=within)


def test_a_sum_over_rows_takes_what_each_of_its_blocks_finds():
    # 128 threads: 32 by columns, each of four, 4 by rows; of 512 rows each sums 16, in 32 blocks.
    assert H200.sum_bytes(2048, 3072) == 32 * 128 * 4 * 3072 == 48 * MIB
    assert H200.sum_bytes(1020, 3072) == 0  # each has fewer than 256 rows, and sums them all
    assert H200.sum_bytes(2**20, 3072) == 1024 * 128 * 4 * 3072  # 256 rows each
    assert H200.sum_bytes(32768, 96) == 256 * 64 * 4 * 96  # 24 columns of four, of which 16 stand side by side


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
    taken = [product_workspace_bytes(of, STEP, "cuda", "forward", H100) for of in (NARROW, biased)]
    assert taken == [32 * MIB, 33 * MIB]


def test_a_block_of_the_allocator_is_cut_where_more_than_a_mebibyte_is_left():
    assert allocated_bytes((1, 512, 513)) == 512 + 512 + 1024
    assert allocated_bytes((9 * MIB, 9 * MIB)) == 18 * MIB
    assert allocated_bytes((9 * MIB, 9 * MIB, 3 * MIB // 2)) == 20 * MIB  # half a mebibyte goes with the last
    assert allocated_bytes((31 * MIB + 1,)) == 32 * MIB
    assert allocated_bytes((30 * MIB + 1,)) == 30 * MIB + 512
