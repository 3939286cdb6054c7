"""Which operators a calibration measures when time runs out, on clocks that say so."""

import time

import pytest
import torch

from workflow_scripts.lib import operator_calls, operator_costs
from workflow_scripts.lib.cost_fits import EXECUTIONS
from workflow_scripts.lib.model import BACKENDS
from workflow_scripts.lib.operator_sizes import result_elements, sizes
from workflow_scripts.lib.precision import autocast
from workflow_scripts.lib.provenance import modules_of


@pytest.mark.parametrize(("each_s", "corners", "insides"), [(0.0, 1.0, 1.0), (0.05, 1.0, 0.0), (4.0, 0.0, 0.0)])
def test_when_time_runs_out_corners_are_still_measured(monkeypatch, each_s, corners, insides):
    """In 16 bits on an H200 a calibration once ended with one size of a product."""
    timed = {"seconds": 1e-5, "host_s": None, "n": 3, "sampled_s": each_s}
    monkeypatch.setattr(operator_costs, "time_call", lambda *_: dict(timed))
    monkeypatch.setattr(operator_costs, "build", lambda *_: (lambda: None, None))
    points, cpu = sizes("cpu", "bf16"), torch.device("cpu")
    found = operator_costs._measure_precision("bf16", points, cpu, 1e-3, 1.0, lambda: 0.0)
    measured = {(one["kind"], tuple(one["dims"])) for one in found}
    kinds = {kind for _, kind, _ in points}
    assert {kind for kind, _ in measured} == kinds
    for share, inside in ((corners, False), (insides, True)):
        of_these = [(kind, dims) for where, kind, dims in points if where == inside]
        assert len(measured & set(of_these)) == (len(of_these) * share or (0 if inside else len(kinds)))


def test_what_the_first_call_of_a_size_takes_leaves_time_for_the_others(monkeypatch):
    """cuDNN plans attention for each size: on an H200 in 16 bits seven of the largest were left out."""
    now, called = [0.0], set()

    def build(kind, dims, device):
        def call():
            now[0] += 0.001 if (kind, dims) in called else 10.0
            called.add((kind, dims))

        return call, None

    monkeypatch.setattr(operator_costs, "build", build)
    points = sizes("cpu", "bf16")
    found = operator_costs._measure_precision("bf16", points, torch.device("cpu"), 1e-3, 1.0, lambda: now[0])
    assert len(found) == len(points)
    assert all(one["seconds"] == pytest.approx(0.001) and "sampled_s" not in one for one in found)


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_a_product_reads_what_the_product_before_it_left(monkeypatch, precision, dtype):
    """Compiled, no product casts its input; eagerly those after a normalisation do, which `step_operators` counts."""
    seen, cpu = [], torch.device("cpu")
    plain = torch.nn.functional.linear
    monkeypatch.setattr(
        operator_calls.F, "linear", lambda x, weight: seen.append((x.dtype, weight.dtype)) or plain(x, weight)
    )
    with autocast(precision, cpu):
        forward, backward = operator_calls.build("linear", (8, 4, 2), cpu)
        assert forward().dtype == dtype
    backward()
    assert set(seen) == {(dtype, torch.float32)}


def addresses_of_products(monkeypatch, spread_bytes, calls):
    """Where inputs, weights and results of so many products lie, and the results whose gradients are taken."""
    monkeypatch.setattr(operator_calls, "SPREAD_BYTES", {"cpu": spread_bytes})
    plain, gradient, read, derived = torch.nn.functional.linear, torch.autograd.grad, [], []

    def linear(x, weight):
        read.append((x.data_ptr(), weight.data_ptr()))
        return plain(x, weight)

    def grad(output, *rest, **more):
        derived.append(output.data_ptr())
        return gradient(output, *rest, **more)

    monkeypatch.setattr(operator_calls.F, "linear", linear)
    monkeypatch.setattr(torch.autograd, "grad", grad)
    forward, backward = operator_calls.build("linear", (8, 4, 2), torch.device("cpu"))
    read.clear()
    results = [forward().data_ptr() for _ in range(calls)]
    for _ in range(calls):
        backward()
    return [x for x, _ in read], [weight for _, weight in read], results, derived


def test_on_a_processor_an_operator_comes_back_to_its_memory_after_that_of_others(monkeypatch):
    """Called again at once, products of few tokens find their weights in a cache, as in no step."""
    copies = 3
    bytes_of_one = 4 * (8 * 4 + 4 * 2 + 8 * 2)
    inputs, weights, results, outputs = addresses_of_products(monkeypatch, (copies - 1) * bytes_of_one, 2 * copies)
    assert len(set(inputs)) == 1, "the operator before it has just written its input"
    for turns in (weights, results, outputs):
        assert len(set(turns[:copies])) == copies
    for turns in (weights, outputs):
        assert turns[:copies] == turns[copies:]


def test_an_operator_larger_than_the_caches_has_no_copies(monkeypatch):
    _, weights, _, outputs = addresses_of_products(monkeypatch, 100, 4)
    assert len(set(weights)) == len(set(outputs)) == 1


def test_heads_are_split_over_sequences():
    assert {dims for _, kind, dims in sizes("cpu") if kind == "attention" and dims[2:] == (32, 8)} == {
        (1, 1, 32, 8), (1, 4, 32, 8), (8, 4, 32, 8)
    }  # fmt: skip


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_bias_costs_its_gradient_alone(precision):
    cpu = torch.device("cpu")
    with autocast(precision, cpu):
        forward, backward = operator_calls.build("bias", (8, 4), cpu)
    assert forward is None
    backward()
    points = [(False, "bias", (64, 8)), (False, "bias", (64, 512))]
    found = operator_costs._measure_precision(precision, points, cpu, 1e-3, 1.0, time.perf_counter)
    assert [(one["direction"], one["dims"]) for one in found] == [("backward", [64, 8]), ("backward", [64, 512])]
    assert all(one["seconds"] > 0 for one in found)


@pytest.mark.parametrize(
    ("precision", "length", "plain"), [("bf16", 128, True), ("bf16", 256, False), ("fp32", 128, False)]
)
def test_attention_is_measured_as_a_processor_s_step_runs_it(monkeypatch, precision, length, plain):
    asked = []
    real = operator_calls.sdpa_kernel
    monkeypatch.setattr(operator_calls, "sdpa_kernel", lambda backend: asked.append(backend) or real(backend))
    with autocast(precision, torch.device("cpu")):
        operator_calls.build("attention", (1, 1, length, 8), torch.device("cpu"))
    assert set(asked) == ({BACKENDS["math"]} if plain else set())


@pytest.mark.parametrize(("given", "counted"), [([0, 4096, 0, 0], [1, 3, 4]), ([4096] * 11, [9, 10, 11])])
def test_a_call_that_was_given_memory_is_called_again(monkeypatch, given, counted):
    """But not for ever: where the C library gives all back, every call is given its memory anew."""
    clock, pages, durations = [0.0], [0], iter(range(1, 12))

    def call():
        number = next(durations)  # the first takes a second, the next two
        pages[0] += given[number - 1]
        clock[0] += number

    monkeypatch.setattr(operator_costs, "given_pages", lambda: pages[0])
    take = operator_costs._await(call, torch.device("cpu"), lambda: clock[0])
    assert [take()[0] for _ in counted] == counted


def test_before_a_processor_s_operators_are_measured_the_process_is_given_memory(monkeypatch):
    touched = []
    monkeypatch.setattr(operator_costs, "touch_memory", touched.append)
    monkeypatch.setattr(operator_costs, "sizes", lambda *_: [])
    monkeypatch.setattr(operator_costs, "measure_steps", lambda *_: [])
    device = {"id": "cpu", "type": "cpu", "threads": torch.get_num_threads()}
    operator_costs.measure_operators({"device": device, "precisions": ["fp32"], "budget_s": 1.0}, lambda message: None)
    assert touched == [operator_costs.HEAP_BYTES]


def test_of_the_rounds_over_a_processor_s_sizes_the_faster_counts_for_each(monkeypatch):
    """A burst of half a second once made the products with a vocabulary 1.6 times as slow."""
    points = [(True, "gelu", (32, 8)), (True, "gelu", (512, 8)), (True, "gelu", (2048, 8))]
    times = iter((1.0, 9.0, 3.0, 8.0, 2.0, 4.0))
    timed = {"host_s": None, "n": 3, "sampled_s": 0.0}
    monkeypatch.setattr(operator_costs, "time_call", lambda *_: {**timed, "seconds": next(times)})
    monkeypatch.setattr(operator_costs, "build", lambda *_: (lambda: None, None))
    found = operator_costs._measure_precision("fp32", points, torch.device("cpu"), 1.0, 1.0, lambda: 0.0)
    assert [one["seconds"] for one in found] == [1.0, 2.0, 3.0]


def test_a_backward_call_that_a_burst_made_slow_is_timed_again(monkeypatch):
    calls, row = iter((9.0, 2.0)), {"direction": "backward", "host_s": None, "seconds": 10.0}
    monkeypatch.setattr(operator_costs, "backward_call_s", lambda *_: next(calls))
    monkeypatch.setattr(operator_costs, "touch_memory", lambda _: None)
    monkeypatch.setattr(operator_costs, "measure_steps", lambda *_: [])
    monkeypatch.setattr(operator_costs, "_measure_precision", lambda *_: [row])
    device = {"id": "cpu", "type": "cpu", "threads": torch.get_num_threads()}
    arguments = {"device": device, "precisions": ["fp32"], "budget_s": 1.0}
    assert operator_costs.measure_operators(arguments, lambda _: None)["operators"] == [{**row, "seconds": 8.0}]


@pytest.mark.parametrize("kind", ["residual", "embedding"])
def test_sums_and_tables_are_measured_beyond_what_a_cache_holds(kind):
    """The gradient of 16,384 × 480 numbers moves at the memory's pace, not at a cache's."""
    assert max(result_elements(one, dims) for _, one, dims in sizes("cpu") if one == kind) >= 2**22


def test_measuring_operators_is_free_of_predicting():
    names = {path.stem for path in modules_of("workflow_scripts/calibrate_device.py")}
    assert "operator_costs" in names
    assert not names & {"cost_model", "operator_rates", "operator_work", "step_costs"}
    assert set(EXECUTIONS) == {"cpu", "cuda", "mps"}
