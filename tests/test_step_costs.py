"""What a step's operators add up to on invented devices, and what bounds it."""

import dataclasses

import pytest

from tests.test_cost_model import device, shape, step
from tests.tiny_run import ADAMW
from workflow_scripts.lib import head_loss, operator_work
from workflow_scripts.lib.step_costs import STEP_KERNELS, step_costs, step_traffic_bytes


@pytest.mark.parametrize(
    ("model", "batch_size", "bound"),
    [(shape(8, 16, sequence_length=8), 1, "launch"), (shape(2, 512, sequence_length=256), 16, "compute")],
)
def test_what_bounds_a_step_is_told(model, batch_size, bound):
    rates = device(flop_per_s=1e10)
    assert step_costs(model, step(batch_size), ADAMW, "cpu", rates).bound == bound


def test_a_slow_memory_bounds_a_step_by_bandwidth():
    costs = step_costs(shape(2, 64), step(16), ADAMW, "cpu", device(flop_per_s=1e14, bytes_per_s=1e9))
    assert costs.bound == "bandwidth"
    assert costs.total_s == pytest.approx(sum(costs.parts_s.values()))


def test_on_cuda_the_slower_of_host_and_device_sets_the_pace_and_a_graph_frees_it_of_the_host():
    rates = device(flop_per_s=1e14, bytes_per_s=1e12, host_s=20e-6)
    small = shape(8, 64, sequence_length=32)
    eager = step_costs(small, step(1), ADAMW, "cuda", rates)
    graphed = step_costs(small, step(1, "graphed"), ADAMW, "cuda", rates)
    assert eager.bound == "launch"
    assert eager.total_s == pytest.approx(eager.launch_s)
    assert eager.launch_s > eager.compute_s + eager.bandwidth_s
    assert graphed.total_s < eager.total_s / 4


@pytest.mark.parametrize(("precision", "left"), [("fp32", 1), ("bf16", 1 / 2)])
def test_a_large_vocabulary_s_loss_costs_its_forward_passes_alone_where_head_and_loss_are_one(precision, left):
    large, rates = shape(vocab_size=8192), device(bytes_per_s=1e9)
    asked = dataclasses.replace(step(8, "compiled"), precision=precision)
    plain, one = (step_costs(large, asked, ADAMW, kind, rates).bandwidth_s for kind in ("cpu", "cuda"))
    logits = 8 * large.sequence_length * 8192
    assert plain - one == pytest.approx((5 - 2 * left) * 4 * logits / 1e9, rel=0.2)
    small = [step_costs(shape(), asked, ADAMW, kind, rates).bandwidth_s for kind in ("cpu", "cuda")]
    assert small[0] == pytest.approx(small[1], rel=0.05)


def test_a_captured_step_pays_for_the_kernels_of_no_operator():
    rates = device(flop_per_s=1e14, bytes_per_s=1e12, host_s=20e-6)
    slower = dataclasses.replace(rates, kernel_s=(rates.kernel_s or 0.0) + 1e-6)
    less, more = (step_costs(shape(), step(1, "graphed"), ADAMW, "cuda", one) for one in (rates, slower))
    assert less.launch_s >= STEP_KERNELS * rates.shortest_s > 0
    assert more.total_s - less.total_s == pytest.approx(STEP_KERNELS * 1e-6)


def test_a_width_or_a_context_of_the_vocabulary_s_size_is_no_vocabulary():
    rates = device()
    like, unlike = (
        step_costs(shape(2, 64, sequence_length=256, vocab_size=n), step(4), ADAMW, "cpu", rates) for n in (256, 250)
    )
    assert like.vocabulary_s == pytest.approx(unlike.vocabulary_s, rel=0.1)


def test_a_compiler_leaves_fewer_bytes_to_move():
    eager, compiled = (step_traffic_bytes(shape(), step(8, execution)) for execution in ("eager", "compiled"))
    assert compiled < eager
    rates = device(bytes_per_s=1e9)
    assert step_costs(shape(), step(8, "compiled"), ADAMW, "cpu", rates).total_s < (
        step_costs(shape(), step(8), ADAMW, "cpu", rates).total_s
    )


def test_a_step_and_its_prediction_agree_from_which_vocabulary_on_head_and_loss_are_one():
    assert operator_work.LARGE_VOCABULARY == head_loss.LARGE_VOCABULARY
