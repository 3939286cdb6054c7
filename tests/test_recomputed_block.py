"""Blocks that are computed again, as compiled graphs: the closed form against what steps on an H200 took (torch 2.11).

Of two blocks 512 wide with eight heads, 16 sequences of 512 of 65 tokens, with plain SGD: MiB that were allocated at
most in the first step, in which kernels are tuned, and in the second.
"""

import dataclasses

import pytest

from tests.test_counts import shape
from tests.test_cuda_memory import NARROW, STEP
from tests.test_tuning_moments import ADAM, MUON, PLAIN, SGD, estimated
from workflow_scripts.lib.counts import default_inner
from workflow_scripts.lib.cuda_allocator import MIB
from workflow_scripts.lib.recomputed_block import recomputed_moments

MEASURED = [  # dropout with fused and plain attention, and neither with dropout
    ("gpt2", False, "fp32", (518.25, 414.25), (918.56, 798.56), (502.28, 442.28), (630.03, 570.03)),
    ("gpt2", False, "bf16", (354.25, 280.25), (716.03, 660.03), (362.28, 274.28), (492.03, 436.03)),
    ("gpt2", False, "fp16", (378.25, 300.25), (740.03, 680.03), (394.28, 302.28), (540.03, 466.03)),
    ("gpt2", True, "fp32", (520.30, 416.29), (860.61, 860.61), (504.30, 444.29), (632.21, 572.20)),
    ("gpt2", True, "bf16", (356.30, 282.32), (718.08, 662.10), (364.33, 276.35), (494.21, 438.73)),
    ("gpt2", True, "fp16", (380.30, 302.29), (742.08, 682.07), (396.33, 304.32), (542.21, 468.70)),
    ("llama", False, "fp32", (576.85, 516.84), (945.16, 885.15), (562.10, 502.09), (660.60, 600.59)),
    ("llama", False, "bf16", (375.60, 319.85), (703.91, 648.16), (363.60, 307.85), (495.97, 440.85)),
    ("llama", False, "fp16", (399.60, 339.59), (727.91, 667.90), (387.60, 327.59), (521.97, 485.97)),
]
HALF = ("fp16", "math", 0.0)
WAYS = [(0.1, "auto"), (0.1, "math"), (0.0, "auto"), (0.0, "math")]
CASES = [
    (architecture, bias, precision, *way, *peaks)
    for architecture, bias, precision, *measured in MEASURED
    for way, peaks in zip(WAYS, measured, strict=True)
]


@pytest.mark.parametrize(("architecture", "bias", "precision", "dropout", "attention", "first", "steady"), CASES)
def test_a_block_that_is_computed_again_holds_what_its_graph_allocates(
    architecture, bias, precision, dropout, attention, first, steady
):
    step = (precision, "compiled", 16, 1, attention, True)
    found = estimated(architecture, (2, 8, 512, 65, 512, bias, dropout), PLAIN, step)
    assert found.peak_bytes == pytest.approx(first * MIB, rel=0.0006)
    later = max(size for name, size in found.moments.items() if name != "tuning")
    # Plain attention's gradients in 16 bits become float32 one after the other, of which no order is assumed.
    assert later == pytest.approx(steady * MIB, rel=0.006 if (precision, attention, dropout) == HALF else 0.002)


@pytest.mark.parametrize(
    ("architecture", "sizes", "optimizer", "step", "measured"),
    [
        ("gpt2", (8, 13, 832, 1024, 1024, False, 0.1), MUON, ("bf16", "compiled", 16, 1, "auto", True), 1_460_035_072),
        # One sequence: turning q, k and v copies nothing, so that v keeps all of them.
        ("gpt2", (9, 7, 896, 32000, 2048, True, 0.0), ADAM, ("fp32", "compiled", 4, 4, "math", True), 2_479_601_664),
        # The softmax of 512 columns has one variant, backward.
        ("gpt2", (3, 2, 64, 65, 512, True, 0.0), ADAM, ("bf16", "compiled", 16, 1, "math", True), 195_676_672),
        # Few tokens beside the width.
        ("llama", (2, 10, 640, 65, 256, False, 0.0), SGD, ("fp32", "compiled", 4, 2, "math", True), 228_484_608),
        # Scores, which are most.
        ("gpt2", (1, 3, 192, 65, 2048, True, 0.0), ADAM, ("bf16", "compiled", 32, 1, "math", True), 3_531_535_360),
        ("gpt2", (5, 2, 256, 65, 2048, False, 0.0), PLAIN, ("tf32", "compiled", 32, 2, "math", True), 1_684_654_592),
        ("llama", (2, 1, 32, 65, 2048, False, 0.0), SGD, ("fp16", "compiled", 8, 1, "math", True), 351_976_448),
        # What the head read is gone when that gets its gradient.
        ("gpt2", (1, 13, 416, 50304, 2048, True, 0.0), MUON, ("fp16", "compiled", 2, 1, "auto", True), 860_617_728),
    ],
)  # fmt: skip
def test_steps_of_other_sizes(architecture, sizes, optimizer, step, measured):
    assert estimated(architecture, sizes, optimizer, step).peak_bytes == pytest.approx(measured, rel=0.0015)


@pytest.mark.parametrize(
    ("architecture", "step", "moment", "per_token"),
    [
        # Of the width (512), of the MLP's (2048 or 1408), of the scores (8 heads of 512), and of rows.
        ("gpt2", ("fp32", "auto", 0.1), "mlp_backward", 40 * 512 + 8 * 2048 + 44),
        ("gpt2", ("fp32", "auto", 0.0), "mlp_backward", 32 * 512 + 12 * 2048 + 48),
        ("llama", ("bf16", "auto", 0.0), "mlp_backward", 20 * 512 + 10 * 1408 + 40),
        ("gpt2", ("fp32", "math", 0.1), "attention_backward", 32 * 512 + 12 * 8 * 512 + 84),
        ("gpt2", ("bf16", "math", 0.1), "attention_backward", 12 * 512 + 12 * 8 * 512 + 84),
        ("llama", ("bf16", "math", 0.1), "attention_backward", 20 * 512 + 12 * 8 * 512 + 80),
    ],
)
def test_a_block_holds_the_tensors_of_the_generated_code(architecture, step, moment, per_token):
    inner = default_inner(architecture, 512)
    of = shape(architecture, 2, 8, 512, n_inner=inner, sequence_length=512, dropout=step[2], bias=False)
    asked = dataclasses.replace(
        STEP, execution="compiled", checkpointing=True, batch_size=16, precision=step[0], attention=step[1]
    )
    assert recomputed_moments(of, asked)[moment].per_token == per_token


def test_a_matrixs_gradient_becomes_float32_beside_what_its_block_holds():
    step = ("bf16", "compiled", 2, 1, "auto", True)
    found = estimated("gpt2", (2, 11, 1408, 1024, 2048, False, 0.1), PLAIN, step)
    later = {name: size for name, size in found.moments.items() if name != "tuning"}
    assert max(later.values()) == later["cast_backward"] == pytest.approx(649.115 * MIB, rel=0.0006)


@pytest.mark.parametrize("step", [STEP, dataclasses.replace(STEP, execution="compiled")])
def test_only_a_block_that_is_computed_again_is_a_graph_of_its_own(step):
    with pytest.raises(ValueError, match="no block of its own"):
        recomputed_moments(NARROW, step)
