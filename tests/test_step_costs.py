"""What a step's operators add up to on invented devices, and what bounds it."""

import dataclasses
import math

import pytest

from tests.test_cost_model import device, shape, step
from tests.tiny_run import ADAMW
from workflow_scripts.lib import head_loss, operator_work
from workflow_scripts.lib.cost_model import Case, TimeModel
from workflow_scripts.lib.operator_work import Operator, fused_bytes
from workflow_scripts.lib.step_costs import ARITHMETIC, STEP_KERNELS, StepCosts, step_costs, step_traffic_bytes


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


def test_a_device_that_takes_longer_than_its_host_bounds_a_step_though_each_of_its_parts_is_shorter():
    costs = StepCosts(
        launch_s=4.0, bandwidth_s=3.5, compute_s=2.5, attention_s=0.0, vocabulary_s=0.0, side_by_side=True
    )
    assert (costs.bound, costs.total_s) == ("bandwidth", 6.0)
    alone = dataclasses.replace(costs, side_by_side=False)
    assert (alone.bound, alone.total_s) == ("launch", 10.0)


def test_cells_that_waited_for_the_host_say_little_of_the_device():
    rates = device(flop_per_s=1e13, bytes_per_s=1e11, host_s=20e-6)

    def costs(batch_size):
        return step_costs(shape(8, 64), step(batch_size), ADAMW, "cuda", rates)

    def case(batch_size):
        of = costs(batch_size)
        seconds = max(1.5 * of.launch_s, of.bandwidth_s + of.compute_s)
        return Case(shape=shape(8, 64), step=step(batch_size), optimizer=ADAMW, step_time_s=seconds)

    host_s, sizes = costs(1).launch_s, [2**n for n in range(14)]
    device_s = {n: costs(n).bandwidth_s + costs(n).compute_s for n in sizes}
    few, near, many = (
        [n for n in sizes if low * host_s < device_s[n] < high * host_s] for low, high in ((0, 0.7), (1, 1.4), (2, 50))
    )
    assert min(map(len, (few, near, many))) > 0
    model = TimeModel(device_type="cuda", rates=rates, cases=tuple(map(case, few)))
    told = {n: model.predict(shape(8, 64), step(n), ADAMW) for n in near + many}
    for n in near:  # the device takes longer than the host was calibrated to, but not than it takes
        assert (told[n].bound, told[n].step_time_s) == ("launch", pytest.approx(1.5 * host_s, rel=0.05))
    for n in many:
        assert told[n].step_time_s == pytest.approx(device_s[n], rel=0.2)


@pytest.mark.parametrize(("precision", "element"), [("fp32", 4), ("bf16", 2)])
def test_a_large_vocabulary_s_loss_reads_its_logits_once_less_where_head_and_loss_are_one(precision, element):
    """Alone it reads them twice, and backward reads them and writes their gradient; together a read is saved."""
    large, rates = shape(vocab_size=8192), device(bytes_per_s=1e9)
    asked = dataclasses.replace(step(8, "compiled"), precision=precision)
    plain, one = (step_costs(large, asked, ADAMW, kind, rates).bandwidth_s for kind in ("mps", "cuda"))
    logits = 8 * large.sequence_length * 8192
    assert plain - one == pytest.approx(element * logits / 1e9, rel=0.2)
    small = [step_costs(shape(), asked, ADAMW, kind, rates).bandwidth_s for kind in ("mps", "cuda")]
    assert small[0] == pytest.approx(small[1], rel=0.05)


@pytest.mark.parametrize("kind", ARITHMETIC)
def test_what_a_processor_computes_takes_as_long_compiled(kind):
    rates = device(bytes_per_s=1e9)
    slow = [dataclasses.replace(one, seconds=10 * one.seconds) if one.kind == kind else one for one in rates.operators]

    def more_s(execution, device_type):
        asked, of = step(8, execution), shape(vocab_size=8192)
        slower = step_costs(of, asked, ADAMW, device_type, dataclasses.replace(rates, operators=tuple(slow)))
        return slower.total_s - step_costs(of, asked, ADAMW, device_type, rates).total_s

    assert more_s("compiled", "cpu") == pytest.approx(more_s("eager", "cpu"), rel=0.01)
    assert more_s("compiled", "mps") < more_s("eager", "mps") / 5


@pytest.mark.parametrize(
    ("precision", "kind", "dims", "forward", "backward"),
    [
        # A bf16 stream: read and written, with the product's result read and the normalised written; and so on.
        ("bf16", "layer_norm", (100, 8), 8, 12), ("fp16", "layer_norm", (100, 8), 12, 20),
        ("fp32", "rms_norm", (100, 8), 16, 24), ("bf16", "gelu", (100, 32), 4, 6), ("fp32", "bias", (100, 24), 0, 4),
    ],
)  # fmt: skip
def test_the_bytes_of_a_fused_kernel_follow_the_types_of_what_it_moves(precision, kind, dims, forward, backward):
    asked = dataclasses.replace(step(8, "compiled"), precision=precision)
    operator = Operator(kind=kind, dims=dims, calls=1, backward_calls=1)
    for direction, each in (("forward", forward), ("backward", backward)):
        assert fused_bytes(operator, direction, asked) == each * math.prod(dims)
    assert fused_bytes(operator, "forward", dataclasses.replace(asked, execution="eager")) is None


def test_biases_cost_a_pass_over_every_product_s_gradient():
    def more_s(execution):
        plain, biased = (dataclasses.replace(shape(2, 64), bias=bias) for bias in (False, True))
        asked, rates = step(8, execution), device(bytes_per_s=1e9)
        return step_costs(biased, asked, ADAMW, "cuda", rates).bandwidth_s - (
            step_costs(plain, asked, ADAMW, "cuda", rates).bandwidth_s
        )

    gradients = 2 * 8 * 128 * (3 + 1 + 4 + 1) * 64
    assert more_s("compiled") == pytest.approx(4 * gradients / 1e9, rel=0.25)
    assert more_s("eager") > 0


def test_a_fused_kernel_takes_what_the_faster_of_two_takes_that_move_as_much():
    """On an H200 bf16 is added to float32 at 2.8 TB/s, and GELU moves 3.7; on a processor GELU is arithmetic."""
    plain = device(bytes_per_s=1e9)

    def moving_s(*slow):
        slowed = (dataclasses.replace(one, seconds=one.seconds * (9 if one.kind in slow else 1)) for one in operators)
        return dataclasses.replace(plain, operators=tuple(slowed)).moving_s(2**24, 4)

    operators = plain.operators
    for slow in ("residual", "gelu"):
        assert moving_s() <= moving_s(slow) < 2 * moving_s() < moving_s("residual", "gelu")


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
