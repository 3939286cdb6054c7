"""The memory of compiled steps on CUDA in closed form, where it is the first step's: against what an H200 counted.

Measured by `benchmarks/prediction_memory.py` with torch 2.11.0+cu130, one process for each.
"""

import dataclasses

import pytest

from tests.test_counts import shape
from tests.test_cuda_memory import H200, data_bytes
from tests.tiny_run import ADAMW
from workflow_scripts.lib.counts import default_inner
from workflow_scripts.lib.cuda_allocator import MIB
from workflow_scripts.lib.gpu import Gpu
from workflow_scripts.lib.memory_model import MemoryEstimate, estimate_memory
from workflow_scripts.lib.specs import StepSpec


def estimated(architecture, sizes, optimizer, step, gpu=H200, mode="step", on="cuda") -> MemoryEstimate:
    n_layer, n_head, n_embd, vocab_size, length, bias, dropout = sizes
    of = shape(
        architecture, n_layer, n_head, n_embd, n_inner=default_inner(architecture, n_embd), vocab_size=vocab_size,
        sequence_length=length, bias=bias, dropout=dropout,
    )  # fmt: skip
    precision, execution, batch_size, accumulation, attention, checkpointing = step
    asked = StepSpec(
        batch_size=batch_size, precision=precision, execution=execution, accumulation=accumulation,
        attention=attention, checkpointing=checkpointing,
    )  # fmt: skip
    name, momentum = optimizer
    chosen = dataclasses.replace(ADAMW, name=name, momentum=momentum)
    data = data_bytes(batch_size) if on == "cuda" else 0
    return estimate_memory(of, asked, chosen, on, resident_bytes=data, mode=mode, gpu=gpu)


ADAFACTOR, ADAM, MUON, PLAIN, SGD = ("adafactor", 0.0), ("adamw", 0.0), ("muon", 0.95), ("sgd", 0.0), ("sgd", 0.9)
WHOLE = [  # a model in one graph
    # The kernel of gelu's gradient, with a copy of what it changes; beside it logits whose product is made later.
    ("gpt2", (7, 1, 32, 1024, 2048, False, 0.0), PLAIN, ("tf32", "compiled", 16, 1, "auto", False), 768_118_784),
    ("gpt2", (3, 4, 256, 1024, 512, False, 0.0), ADAM, ("tf32", "compiled", 16, 2, "auto", False), 386_342_912),
    # Without that copy, for which there is no room.
    ("gpt2", (1, 6, 192, 65, 1024, False, 0.0), MUON, ("tf32", "compiled", 32, 1, "auto", False), 597_100_032),
    # The loss's gradient, beside plain products of attention a tensor of its own, and its copy.
    ("llama", (25, 8, 256, 10000, 512, False, 0.0), ADAFACTOR, ("fp16", "compiled", 2, 1, "math", False),
     1_005_985_792),
    # The gradient of gelu is not made alone where a bias's is summed over sequences of 128; but of few numbers it is.
    ("gpt2", (2, 10, 320, 1024, 128, True, 0.0), SGD, ("tf32", "compiled", 8, 2, "auto", False), 158_817_792),
    ("gpt2", (1, 5, 640, 65, 128, True, 0.1), PLAIN, ("tf32", "graphed", 16, 1, "auto", False), 251_453_440),
    ("gpt2", (12, 2, 128, 1024, 128, True, 0.1), ADAM, ("fp32", "compiled", 16, 2, "auto", False), 252_706_816),
    # A matrix's gradient turned into float32; the embedding's.
    ("gpt2", (1, 15, 1920, 65, 256, False, 0.0), PLAIN, ("bf16", "compiled", 2, 1, "auto", False), 515_127_296),
    ("gpt2", (1, 2, 256, 10000, 1024, False, 0.1), ADAM, ("fp16", "compiled", 1, 1, "auto", False), 174_701_568),
    # The embedding's and its copy, where head and loss are one, and the head's is not made with it.
    ("gpt2", (5, 2, 256, 50304, 128, True, 0.0), ADAFACTOR, ("fp32", "compiled", 2, 1, "auto", False), 369_399_296),
    ("llama", (1, 2, 128, 10000, 256, False, 0.0), MUON, ("tf32", "compiled", 8, 4, "auto", False), 158_752_768),
    # In half precision without that copy, which is gone when the head's is added.
    ("gpt2", (1, 12, 768, 10000, 1024, True, 0.0), ADAFACTOR, ("bf16", "compiled", 1, 1, "auto", False), 302_035_456),
    ("gpt2", (1, 1, 32, 50304, 256, True, 0.0), ADAM, ("bf16", "compiled", 4, 4, "math", False), 154_292_736),
    # Beside it the embedding itself, its own gradient and dropout's mask.
    ("llama", (2, 10, 960, 50304, 128, False, 0.1), PLAIN, ("tf32", "compiled", 4, 1, "auto", False), 1_086_617_088),
    # A matrix's copy is there and its gradient in float32 though tokens are few.
    ("gpt2", (5, 3, 192, 10000, 128, False, 0.0), ADAM, ("bf16", "compiled", 4, 4, "auto", False), 175_144_448),
    # Plain attention's mask; of long rows its softmax is tuned, and after it there is room for copies.
    ("gpt2", (1, 4, 512, 65, 1024, True, 0.0), MUON, ("bf16", "compiled", 4, 2, "math", False), 235_799_552),
    ("gpt2", (2, 2, 128, 1024, 2048, False, 0.1), PLAIN, ("tf32", "graphed", 16, 2, "math", False), 1_856_764_928),
    # The softmax of long rows, from the third block on, and its copy.
    ("gpt2", (3, 8, 1024, 65, 2048, True, 0.1), ADAFACTOR, ("bf16", "compiled", 4, 1, "math", False), 4_115_499_008),
]  # fmt: skip
ORDER = [  # in which a graph's last block is computed
    # Tensors wait to be used again where the graph's peak allows it,
    ("gpt2", (2, 2, 256, 1024, 1024, False, 0.1), PLAIN, ("bf16", "compiled", 8, 2, "auto", False), 229_963_264),
    ("llama", (22, 1, 128, 1024, 256, False, 0.1), ADAFACTOR, ("fp32", "compiled", 32, 2, "auto", False),
     1_071_265_280),
    ("llama", (2, 2, 128, 1024, 128, False, 0.0), SGD, ("fp32", "compiled", 32, 1, "auto", False), 230_913_024),
    # as it is reckoned before logits have their gradient in their place,
    ("gpt2", (4, 1, 96, 1024, 2048, False, 0.1), SGD, ("tf32", "compiled", 32, 2, "auto", False), 1_201_879_040),
    ("gpt2", (5, 4, 128, 1024, 256, False, 0.1), SGD, ("fp32", "compiled", 8, 1, "auto", False), 238_925_312),
    # A tied head's gradient is in 16 bits until it is added to the embedding's; beside the logits of a small vocabulary
    # the last matrix's is there in 16 bits and in full.
    ("gpt2", (4, 1, 128, 10000, 2048, False, 0.0), SGD, ("bf16", "compiled", 1, 1, "auto", False), 180_416_512),
    ("gpt2", (7, 7, 896, 10000, 1024, True, 0.1), PLAIN, ("fp16", "compiled", 1, 1, "auto", False), 865_812_480),
    ("gpt2", (8, 2, 192, 1024, 256, True, 0.0), MUON, ("bf16", "compiled", 4, 1, "auto", False), 207_733_760),
    # Dropout's normalisation of wide rows.
    ("gpt2", (6, 56, 1792, 1024, 128, False, 0.1), ADAFACTOR, ("fp32", "compiled", 32, 1, "auto", False),
     4_147_233_280),
    # and where it does not.
    ("gpt2", (3, 7, 672, 65, 2048, False, 0.1), PLAIN, ("tf32", "compiled", 2, 1, "auto", False), 821_053_440),
    ("llama", (8, 6, 192, 65, 1024, False, 0.1), SGD, ("bf16", "compiled", 2, 1, "auto", False), 277_401_600),
    # Fused attention's kernel is done with.
    ("gpt2", (1, 21, 672, 1024, 256, True, 0.0), ADAFACTOR, ("fp32", "compiled", 2, 1, "auto", False), 196_321_280),
    # The matrix's copy is gone, its gradient not in float32 yet.
    ("gpt2", (2, 3, 384, 65, 256, False, 0.0), ADAM, ("bf16", "compiled", 2, 1, "math", False), 170_135_040),
]  # fmt: skip
BLOCKS = [  # with checkpointing each block is one
    ("gpt2", (1, 10, 320, 10000, 512, False, 0.0), ADAFACTOR, ("bf16", "compiled", 8, 1, "auto", True), 229_142_528),
    ("gpt2", (6, 2, 128, 65, 256, False, 0.0), MUON, ("bf16", "compiled", 16, 2, "auto", True), 151_587_328),
    ("llama", (1, 5, 160, 1024, 128, False, 0.0), ADAM, ("bf16", "compiled", 32, 1, "auto", True), 167_689_216),
    ("llama", (11, 2, 128, 1024, 1024, False, 0.0), SGD, ("tf32", "graphed", 2, 1, "auto", True), 213_306_368),
    # Plain attention computed again, of few scores a row; the embedding's gradient and its copy.
    ("gpt2", (2, 9, 288, 65, 256, True, 0.1), PLAIN, ("fp16", "compiled", 16, 2, "math", True), 228_559_872),
    ("llama", (16, 5, 320, 32000, 128, False, 0.0), PLAIN, ("tf32", "compiled", 1, 1, "auto", True), 498_103_296),
    # Beside the embedding's gradient that of what it put out, with dropout's mask.
    ("gpt2", (3, 4, 384, 10000, 256, False, 0.0), ADAM, ("fp16", "compiled", 2, 1, "auto", True), 235_961_856),
    ("gpt2", (7, 5, 320, 65, 256, False, 0.1), SGD, ("fp32", "compiled", 4, 4, "auto", True), 200_740_352),
    # The loss's gradient has no copy: there is no room for it.
    ("gpt2", (2, 4, 128, 32000, 128, False, 0.1), SGD, ("fp16", "compiled", 8, 1, "math", True), 321_769_984),
]  # fmt: skip


@pytest.mark.parametrize(("architecture", "sizes", "optimizer", "step", "measured"), [*WHOLE, *BLOCKS])
def test_the_first_step_is_the_largest_where_kernels_are_tuned(architecture, sizes, optimizer, step, measured):
    found = estimated(architecture, sizes, optimizer, step)
    assert found.peak_bytes == pytest.approx(measured, rel=0.0085)


@pytest.mark.parametrize(("architecture", "sizes", "optimizer", "step", "measured"), ORDER)
def test_what_is_there_when_the_last_block_is_tuned_follows_the_compilers_order(
    architecture, sizes, optimizer, step, measured
):
    found = estimated(architecture, sizes, optimizer, step)
    assert found.peak_bytes == found.moments["tuning"] == pytest.approx(measured, rel=0.002)


@pytest.mark.parametrize(
    ("architecture", "sizes", "optimizer", "step", "measured"),
    [
        ("llama", (2, 14, 896, 50304, 128, False, 0.1), ADAM, ("fp16", "compiled", 4, 1, "auto", False), 1_827_018_240),
        ("llama", (2, 28, 896, 50304, 256, False, 0.1), ADAM, ("bf16", "compiled", 4, 2, "auto", False), 2_263_779_328),
        ("gpt2", (2, 11, 1408, 10000, 256, True, 0.0), ADAM, ("fp32", "graphed", 2, 1, "auto", True), 1_155_359_232),
        ("gpt2", (5, 6, 768, 32000, 1024, True, 0.1), PLAIN, ("bf16", "compiled", 4, 4, "auto", True), 758_260_736),
    ],
)  # fmt: skip
def test_beside_the_embeddings_gradient_is_what_it_is_made_of(architecture, sizes, optimizer, step, measured):
    found = estimated(architecture, sizes, optimizer, step)
    assert found.peak_bytes == found.moments["embedding_backward"] == pytest.approx(measured, rel=0.0001)


@pytest.mark.parametrize(
    ("sizes", "optimizer", "step", "measured"),
    [
        ((2, 4, 512, 1024, 128, True, 0.0), ADAFACTOR, ("fp32", "compiled", 4, 4, "auto", False), 176_721_920),
        ((1, 23, 736, 65, 128, False, 0.0), MUON, ("tf32", "compiled", 2, 2, "auto", False), 176_311_808),
        # But not in half precision, and not those of a large table.
        ((2, 4, 512, 1024, 128, True, 0.0), ADAFACTOR, ("bf16", "compiled", 4, 4, "auto", False), 187_465_728),
        ((2, 4, 512, 10000, 128, True, 0.0), ADAFACTOR, ("fp32", "compiled", 4, 4, "auto", False), 262_832_128),
    ],
)
def test_of_few_tokens_a_small_tables_gradient_is_made_before_those_of_wide_matrices(sizes, optimizer, step, measured):
    assert measured < estimated("gpt2", sizes, optimizer, step).peak_bytes < 1.03 * measured


@pytest.mark.parametrize("n_layer", [1, 6])
def test_the_softmax_of_long_rows_is_tuned_in_the_second_or_third_block(n_layer):
    step = ("bf16", "compiled", 4, 1, "math", False)
    found = estimated("gpt2", (n_layer, 8, 1024, 65, 2048, True, 0.1), ADAFACTOR, step)
    assert found.peak_bytes == found.moments["attention_backward"]


def test_a_table_whose_gradient_a_kernel_of_one_variant_changes_is_not_copied():
    sizes, step = (2, 4, 512, 10000, 256, False, 0.1), ("bf16", "graphed", 2, 1, "auto", False)
    found = estimated("llama", sizes, SGD, step)
    assert found.moments["tuning"] < found.peak_bytes == pytest.approx(303_180_288, rel=0.0001)


@pytest.mark.parametrize(
    ("architecture", "sizes", "optimizer", "step", "measured"),
    [
        # The gradient that comes in is cast; a matrix's is in float32; sums over rows, in parts.
        ("gpt2", (3, 29, 928, 10000, 128, False, 0.0), ADAM, ("fp16", "compiled", 32, 1, "auto", True), 869_604_352),
        ("llama", (24, 3, 288, 1024, 512, False, 0.0), MUON, ("bf16", "compiled", 8, 1, "auto", True), 419_193_856),
        ("gpt2", (2, 28, 896, 65, 128, False, 0.0), ADAM, ("fp32", "graphed", 8, 1, "auto", True), 457_945_600),
        ("gpt2", (2, 45, 1440, 1024, 2048, False, 0.0), MUON, ("fp32", "compiled", 8, 1, "auto", False), 4_007_650_816),
        # What dropout leaves of a gradient, beside it.
        ("gpt2", (5, 3, 288, 65, 2048, False, 0.1), PLAIN, ("tf32", "compiled", 32, 2, "auto", False), 3_437_934_080),
        # In full precision llama's last matrix has its gradient beside what dropout leaves.
        ("llama", (2, 18, 576, 65, 256, False, 0.1), ADAFACTOR, ("tf32", "compiled", 32, 1, "auto", True), 659_698_688),
        ("llama", (1, 6, 384, 1024, 2048, False, 0.1), ADAM, ("fp32", "compiled", 1, 1, "auto", True), 223_884_288),
        # In bf16 sums over rows in parts without biases, too.
        ("gpt2", (1, 9, 1152, 1024, 2048, False, 0.0), ADAM, ("bf16", "compiled", 16, 1, "auto", False), 1_800_748_544),
        # But not with biases, and not in fp16.
        ("gpt2", (2, 2, 128, 1024, 2048, True, 0.0), ADAM, ("bf16", "compiled", 32, 1, "auto", False), 789_271_552),
        ("gpt2", (5, 16, 512, 65, 2048, False, 0.0), ADAFACTOR, ("fp16", "compiled", 16, 2, "auto", False),
         1_851_015_168),
        # What the head read is gone when that gets its gradient in half precision.
        ("gpt2", (1, 6, 768, 32000, 1024, False, 0.1), SGD, ("fp16", "compiled", 16, 1, "auto", False), 2_055_316_480),
        # Both normalisations of an only block are summed at once, and last.
        ("llama", (1, 20, 640, 1024, 2048, False, 0.0), ADAM, ("tf32", "compiled", 2, 1, "math", False), 1_610_593_280),
        # What waits for the next block, while attention has its gradient.
        ("gpt2", (2, 7, 896, 1024, 512, False, 0.0), ADAM, ("fp32", "compiled", 4, 2, "auto", False), 552_340_992),
        ("llama", (4, 19, 1216, 1024, 512, False, 0.0), ADAFACTOR, ("bf16", "compiled", 16, 2, "auto", False),
         1_606_986_752),
        ("llama", (2, 14, 1344, 65, 512, False, 0.1), SGD, ("bf16", "compiled", 8, 2, "auto", False), 938_365_440),
    ],
)  # fmt: skip
def test_a_compiled_backward_pass_holds_more_than_its_operators_need(architecture, sizes, optimizer, step, measured):
    assert estimated(architecture, sizes, optimizer, step).peak_bytes == pytest.approx(measured, rel=0.001)


@pytest.mark.parametrize(
    ("sizes", "optimizer", "step", "measured"),
    [
        ((3, 13, 1664, 10000, 256, False, 0.0), SGD, ("tf32", "compiled", 8, 1, "auto", True), 1_627_516_416),
        # Head and loss as one, in full precision: the head's gradient beside the logits, and nothing else.
        ((2, 2, 256, 10000, 1024, True, 0.0), MUON, ("tf32", "compiled", 16, 1, "auto", True), 850_431_488),
    ],
)
def test_a_steady_step_with_blocks_of_their_own(sizes, optimizer, step, measured):
    found = estimated("gpt2", sizes, optimizer, step)
    assert found.peak_bytes == pytest.approx(measured, rel=0.0125)
    assert found.moments["tuning"] < found.peak_bytes


def test_gelu_is_tuned_without_a_copy_where_its_gradient_is_not_made_alone():
    step = ("fp32", "compiled", 4, 1, "auto", True)
    found = estimated("gpt2", (1, 6, 576, 65, 128, True, 0.1), ADAFACTOR, step)
    assert 170_085_376 < found.peak_bytes == found.moments["tuning"] < 1.04 * 170_085_376


def test_only_what_a_compiler_tunes_has_a_tensor_to_wipe_the_cache():
    of = BLOCKS[0][:-1]
    eager = (*of[:3], ("bf16", "eager", 8, 1, "auto", True))
    assert "tuning" in estimated(*of).moments
    assert "tuning" not in estimated(*eager).moments
    assert "tuning" not in estimated(*of, gpu=Gpu.of({})).moments  # nobody knows the cache's size


def test_a_forward_pass_alone_has_no_gradient_to_copy():
    found = estimated(*WHOLE[2][:-1], mode="forward")
    assert found.moments["tuning"] - found.moments["loss_forward"] == 60 * MIB
