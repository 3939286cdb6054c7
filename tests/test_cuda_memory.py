"""The memory of a step on CUDA in closed form, against what steps took on an H200 with torch 2.11.0+cu130.

Measured by `benchmarks.prediction_memory_side:measure_memory`, one process for each; parts of a step likewise.
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

H200 = Gpu(name="NVIDIA H200", compute_capability="9.0")
STEP = StepSpec(batch_size=4, precision="fp32", execution="eager")
CHARACTERS = {"vocab_size": 66, "sequence_length": 256, "bias": False}
NARROW, MIDDLE, BROAD = (shape("gpt2", 4, 4, width, **CHARACTERS) for width in (64, 128, 192))
WORDS = {"vocab_size": 10_000, "sequence_length": 512}
SMALL, MEDIUM = shape("llama", 12, 12, 768, **WORDS), shape("llama", 24, 16, 1024, **WORDS)


def data_bytes(batch_size):
    """What `measure_memory` holds on the device besides: 100,000 tokens (int32), and where a thousand batches begin."""
    return 4 * 100_000 + 8 * 1000 * batch_size


def estimated(of: ModelShape, mode="step", optimizer=ADAMW, **step) -> MemoryEstimate:
    asked = dataclasses.replace(STEP, **step)
    data = data_bytes(asked.batch_size)
    return estimate_memory(of, asked, optimizer, "cuda", resident_bytes=data, mode=mode, gpu=H200)


@pytest.mark.parametrize(
    ("of", "step", "measured"),
    [
        (NARROW, {"batch_size": 1}, 74_804_224),
        (MIDDLE, {"mode": "forward"}, 72_612_352),
        (MIDDLE, {"mode": "forward_backward"}, 107_486_720),
        (BROAD, {}, 144_622_080),
        (BROAD, {"precision": "bf16"}, 124_670_464),
        (MIDDLE, {"batch_size": 16, "precision": "bf16", "execution": "compiled"}, 208_544_256),
        (MIDDLE, {"batch_size": 16, "precision": "bf16", "execution": "graphed"}, 242_098_688),
        (SMALL, {"mode": "forward"}, 2_689_538_048),
        (SMALL, {"batch_size": 16}, 10_502_233_088),
        (SMALL, {"precision": "bf16", "execution": "compiled"}, 2_735_707_648),
        (SMALL, {"execution": "graphed"}, 3_432_650_752),
        (MEDIUM, {"batch_size": 16, "precision": "bf16"}, 18_293_979_136),
    ],
)
def test_peak_is_that_of_the_real_step(of, step, measured):
    assert estimated(of, **step).peak_bytes == pytest.approx(measured, rel=0.0001)


@pytest.mark.parametrize(
    ("architecture", "n_layer", "n_head", "n_embd", "vocab_size", "sequence_length", "bias", "step", "measured"),
    [
        # Sums of biases' gradients: for each block that sums its 128 columns.
        ("gpt2", 3, 8, 768, 65, 128, True, ("bf16", "eager", 32), 812_693_504),
        ("gpt2", 3, 1, 96, 65, 2048, True, ("bf16", "eager", 16), 512_648_704),
        ("gpt2", 2, 23, 1472, 1024, 128, True, ("bf16", "eager", 16), 1_166_305_792),
        ("gpt2", 2, 23, 1472, 1024, 128, True, ("fp32", "eager", 16), 1_247_711_232),
        # The gradient of a tied head, beside the embedding's.
        ("gpt2", 2, 13, 1248, 32000, 1024, False, ("fp16", "compiled", 1), 1_566_831_104),
        ("gpt2", 2, 13, 1248, 32000, 1024, False, ("bf16", "compiled", 1), 1_562_970_112),
        ("gpt2", 2, 13, 1248, 32000, 1024, False, ("tf32", "compiled", 1), 1_500_288_000),
        # Head and loss as one: the head's weight goes before its gradient comes.
        ("gpt2", 5, 2, 192, 32000, 2048, False, ("bf16", "compiled", 8), 1_762_480_640),
        ("llama", 2, 1, 96, 32000, 128, False, ("bf16", "compiled", 8), 223_916_032),
        # The compiler's wiping of the cache.
        ("gpt2", 1, 3, 192, 65, 512, False, ("bf16", "compiled", 16), 200_407_552),
    ],
)
def test_kernels_scratch_and_gradients_are_those_of_the_real_step(
    architecture, n_layer, n_head, n_embd, vocab_size, sequence_length, bias, step, measured
):
    inner = default_inner(architecture, n_embd)
    sizes = {"n_inner": inner, "vocab_size": vocab_size, "sequence_length": sequence_length, "bias": bias}
    of = shape(architecture, n_layer, n_head, n_embd, **sizes)
    precision, execution, batch_size = step
    found = estimated(of, precision=precision, execution=execution, batch_size=batch_size)
    assert found.peak_bytes == pytest.approx(measured, rel=0.0015)


@pytest.mark.parametrize(
    ("architecture", "sizes", "optimizer", "step", "measured"),
    [
        # Plain products: torch looks for rows of scores that see nothing, and has a tensor of them more.
        ("gpt2", (2, 8, 768, 65, 2048, True, 0.0), "adafactor", ("fp32", 16), 13_106_890_752),
        ("gpt2", (14, 3, 288, 1024, 2048, True, 0.0), "adamw", ("fp16", 4), 5_042_364_928),
        ("gpt2", (11, 21, 1344, 1024, 512, True, 0.0), "adamw", ("tf32", 8), 9_150_041_088),
        ("llama", (1, 13, 1248, 1024, 256, False, 0.0), "sgd", ("fp32", 2), 341_532_160),
        ("gpt2", (2, 8, 768, 65, 2048, True, 0.1), "adamw", ("bf16", 4), 4_074_687_488),
        # Adafactor's sums over the rows of a gradient: the embedding's.
        ("gpt2", (4, 9, 1152, 10000, 128, False, 0.0), "adafactor", ("bf16", 1), 763_586_560),
    ],
)
def test_peak_of_plain_attention_and_of_other_optimizers(architecture, sizes, optimizer, step, measured):
    n_layer, n_head, n_embd, vocab_size, length, bias, dropout = sizes
    of = shape(
        architecture, n_layer, n_head, n_embd, n_inner=default_inner(architecture, n_embd), vocab_size=vocab_size,
        sequence_length=length, bias=bias, dropout=dropout,
    )  # fmt: skip
    chosen = dataclasses.replace(ADAMW, name=optimizer, momentum=0.9)
    found = estimated(of, optimizer=chosen, precision=step[0], batch_size=step[1], attention="math")
    assert found.peak_bytes == pytest.approx(measured, rel=0.001)


@pytest.mark.parametrize(
    ("sizes", "optimizer", "step", "measured"),
    [
        # Beside the gradients of scores a block's first matrix in half precision; queries, keys and values are gone.
        ((6, 18, 1728, 65, 2048, False, 0.0), "sgd", ("bf16", 1, 1, "math", False), 4_965_554_688),
        ((1, 9, 576, 1024, 512, True, 0.0), "adamw", ("tf32", 4, 4, "math", False), 193_838_080),
        # The sum for the bias of a block's last matrix, as earlier micro-batches' gradient of that matrix is there; not
        # where the block was computed again, as what the matrix read is gone.
        ((1, 7, 672, 1024, 512, True, 0.0), "adamw", ("tf32", 16, 4, "auto", False), 308_918_272),
        ((2, 8, 1024, 65, 256, True, 0.1), "adafactor", ("tf32", 32, 1, "auto", True), 995_151_872),
    ],
)
def test_what_is_there_beside_the_largest_tensors_of_a_block(sizes, optimizer, step, measured):
    n_layer, n_head, n_embd, vocab_size, length, bias, dropout = sizes
    of = shape(
        "gpt2", n_layer, n_head, n_embd, vocab_size=vocab_size, sequence_length=length, bias=bias, dropout=dropout
    )
    chosen = dataclasses.replace(ADAMW, name=optimizer, momentum=0.0)
    asked = dict(zip(("precision", "batch_size", "accumulation", "attention", "checkpointing"), step, strict=True))
    assert estimated(of, optimizer=chosen, **asked).peak_bytes == pytest.approx(measured, rel=0.0001)


def test_dropouts_gradient_comes_where_its_mask_goes():
    of = shape("gpt2", 9, 26, 832, vocab_size=65, sequence_length=512, bias=False, dropout=0.1)
    found = estimated(of, optimizer=dataclasses.replace(ADAMW, name="adafactor"), batch_size=8)
    assert found.peak_bytes == pytest.approx(2_491_031_040, rel=0.0001)


@pytest.mark.parametrize(
    ("sizes", "optimizer", "step", "measured", "within"),
    [
        # Without a bias gelu's output is gone when its gradient comes; in full precision what a tied head's gradient is
        # made of stays to the end.
        ((2, 9, 1152, 65, 1024, False), "muon", ("tf32", 2), 3_129_144_320, 0.026),
        ((2, 21, 672, 1024, 1024, False), "adamw", ("fp32", 1), 3_542_853_120, 0.001),
        ((1, 2, 192, 1024, 2048, True), "adamw", ("tf32", 2), 803_890_688, 0.001),
    ],
)
def test_a_compiled_backward_pass_has_the_compilers_order(sizes, optimizer, step, measured, within):
    n_layer, n_head, n_embd, vocab_size, length, bias = sizes
    of = shape("gpt2", n_layer, n_head, n_embd, vocab_size=vocab_size, sequence_length=length, bias=bias)
    chosen = dataclasses.replace(ADAMW, name=optimizer, momentum=0.95)
    asked = {"precision": step[0], "batch_size": 32, "accumulation": step[1], "execution": "compiled"}
    found = estimated(of, optimizer=chosen, **asked)
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
        (NARROW, {}, (88_184_832, 88_504_832, 71_074_304)),
        (BROAD, {}, (142_170_624, 144_622_080, 96_918_016)),
        (
            shape("gpt2", 2, 3, 384, vocab_size=8192, sequence_length=512, bias=False),
            {"batch_size": 32, "accumulation": 2, "checkpointing": True},
            (765_448_192, 1_033_882_624, 177_927_168),
        ),
    ],
)
def test_phases_are_those_of_the_real_step(of, step, phases):
    expected = dict(zip(("forward", "backward", "optimizer"), phases, strict=True))
    assert estimated(of, **step).phases == pytest.approx(expected, rel=0.001)


def test_each_thread_and_stream_of_products_has_a_workspace():
    ways = ({"mode": "forward"}, {}, {"execution": "graphed"})
    assert [estimated(NARROW, **way).moments["loss_forward"] // (32 * MIB) for way in ways] == [1, 2, 3]
    biased = dataclasses.replace(NARROW, bias=True)
    taken = [product_workspace_bytes(of, STEP, "cuda", "forward", H200) for of in (NARROW, biased)]
    assert taken == [32 * MIB, 33 * MIB]
    again = dataclasses.replace(STEP, checkpointing=True)  # by the thread of the backward pass
    taken = [product_workspace_bytes(biased, again, "cuda", mode, H200) for mode in ("forward", "step")]
    assert taken == [33 * MIB, 66 * MIB]


def test_the_allocator_counts_in_grains():
    assert [allocated_bytes(size) for size in (0, 1, 512, 513, 9 * MIB + 1)] == [0, 512, 512, 1024, 9 * MIB + 512]
