"""Memory of a step: the arithmetic on traces and counters, a real step on the CPU, and what becomes of it in tables."""

import dataclasses
import json
import mmap
import os
import sys

import pytest
import torch

from tests.tiny_run import ADAMW, CPU, SHAPE, STEP, write_corpus
from workflow_scripts import measure_memory
from workflow_scripts.lib import memory_probe
from workflow_scripts.lib.isolation import run_isolated
from workflow_scripts.lib.memory_model import estimate_memory
from workflow_scripts.lib.memory_phases import PHASES, PeakCounter, PeakSampler, announce_phases, peaks_of
from workflow_scripts.lib.memory_probe import probe_allocated, probe_footprint, since_the_last
from workflow_scripts.lib.memory_table import fill_memory, memory_row
from workflow_scripts.lib.outcome import Outcome
from workflow_scripts.lib.process_memory import peak_process_bytes, reset_peak_process_bytes, resident_bytes
from workflow_scripts.lib.specs import MemorySpec, to_json

MIB = 2**20
WIDE = dataclasses.replace(SHAPE, n_embd=64, n_inner=256)
MEMORY = MemorySpec(id="tiny", device=CPU, model=WIDE, step=STEP, optimizer=ADAMW, timeout_s=60.0, seed=1)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(autouse=True)
def _a_lock_of_our_own(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ASSAY_RUNTIME_DIR", str(tmp_path_factory.getbasetemp()))


def arguments(folder, **changes):
    paths = {name: str(path) for name, path in write_corpus(folder).items()}
    return {"memory": to_json(dataclasses.replace(MEMORY, **changes)), **paths}


def allocated(folder, **changes):
    return probe_allocated(arguments(folder, **changes), lambda message: None)


def test_a_trace_is_added_up_and_its_largest_sum_found_in_each_phase():
    trace = [100, "forward", 50, 30, -30, "backward", 20, -50, "optimizer", -20, 5]
    assert peaks_of(trace) == {"": 100, "forward": 180, "backward": 170, "optimizer": 120}
    assert peaks_of(["forward", 1, "backward", 5, "forward", 1, "backward"]) == {"forward": 7, "backward": 7}


def test_only_the_last_step_counts_but_all_that_it_found():
    trace = [8, "start", 100, -90, "start", -8, 30]
    assert since_the_last(trace, "start") == ["start", 18, -8, 30]
    assert peaks_of(since_the_last(trace, "start")) == {"start": 40}


def test_a_counter_is_read_at_the_end_of_each_phase_and_set_back():
    now, peak = 10, 10

    def use(amount):
        nonlocal now, peak
        now += amount
        peak = max(peak, now)

    def reset():
        nonlocal peak
        peak = now

    counter = PeakCounter(lambda: peak, reset)
    use(1000)
    use(-1000)  # before any phase: not counted
    counter.enter("forward")
    use(5)
    counter.enter("backward")
    use(20)
    use(-25)
    counter.enter("forward")
    use(1)
    counter.enter(None)
    assert counter.peaks == {"forward": 15, "backward": 35}


def test_samples_are_taken_at_the_borders_of_phases_and_in_between():
    amounts = iter([1, 3, 7, 2, 2])
    sampler = PeakSampler(lambda: next(amounts), every_s=60.0)
    for phase in ("forward", "backward", None):
        sampler.enter(phase)
    assert sampler.peaks == {"forward": 3, "backward": 7}
    assert sampler.n_samples == 4
    with PeakSampler(lambda: 5, every_s=0.0001) as sampler:
        sampler.enter("forward")
        while sampler.n_samples < 4:
            pass
    assert sampler.peaks == {"forward": 5}


def test_a_step_announces_its_phases_and_does_what_it_did(tmp_path):
    entered, losses = [], []
    for announcing in (False, True):
        step = memory_probe.build_step(
            dataclasses.replace(MEMORY, step=dataclasses.replace(STEP, accumulation=2)), arguments(tmp_path)
        )
        if announcing:
            announce_phases(step, entered.append)
        step.run()
        losses.append(float(step.loss))
    assert entered == ["forward", "backward", "forward", "backward", "optimizer"]
    assert losses[0] == losses[1]


def test_a_cell_has_the_same_peak_first_and_last(tmp_path):
    first = allocated(tmp_path)
    large = allocated(tmp_path, step=dataclasses.replace(STEP, batch_size=16))
    last = allocated(tmp_path)
    assert first["peak_allocated_bytes"] == last["peak_allocated_bytes"]
    assert first["phases"] == last["phases"]
    assert large["peak_allocated_bytes"] > 1.5 * first["peak_allocated_bytes"]
    json.dumps(first, allow_nan=False)


def test_the_peak_is_what_the_closed_form_says(tmp_path):
    found = allocated(tmp_path, step=dataclasses.replace(STEP, batch_size=16))
    expected = estimate_memory(WIDE, dataclasses.replace(STEP, batch_size=16), ADAMW, "cpu")
    assert found["peak_allocated_bytes"] == pytest.approx(expected.peak_bytes, rel=0.05)
    assert found["peak_allocated_bytes"] == max(found["phases"].values())
    assert tuple(found["phases"]) == PHASES
    # After the update nothing of the batch is left: parameters, gradients and two moments.
    assert found["phases"]["optimizer"] == pytest.approx(4 * expected.parameters_bytes, rel=0.05)
    assert found["data_bytes"] == 0  # tokens are numpy's on a CPU
    assert found["peak_reserved_bytes"] is None
    assert "profiler" in found["method"]
    assert found["observed"]["optimizer_state_bytes"] > 0


@linux_only
def test_a_footprint_is_what_the_kernel_saw_of_one_step(tmp_path):
    large = dataclasses.replace(MEMORY, model=dataclasses.replace(SHAPE, n_embd=128, n_inner=4096))
    outcome = run_isolated(
        "workflow_scripts.lib.memory_probe:probe_footprint",
        {**arguments(tmp_path), "memory": to_json(large)},
        device=CPU,
        timeout_s=120.0,
        environment=measure_memory.TIGHT_MALLOC,
    )
    found = outcome.result
    expected = allocated(tmp_path, model=large.model)["peak_allocated_bytes"]  # some 40 MiB
    assert found["peak_bytes"] - found["baseline_bytes"] == found["footprint_bytes"]
    if "over one step" in found["method"]:
        assert 0.9 * expected < found["footprint_bytes"] < 1.2 * expected + 8 * MIB


def test_a_peak_that_may_be_hidden_or_cannot_be_read_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_probe, "reset_peak_process_bytes", lambda: False)
    monkeypatch.setattr(memory_probe, "peak_process_bytes", lambda: 10**12)
    assert probe_footprint(arguments(tmp_path), lambda message: None)["footprint_bytes"] is None
    monkeypatch.setattr(memory_probe, "resident_bytes", lambda: None)
    found = probe_footprint(arguments(tmp_path), lambda message: None)
    assert (found["footprint_bytes"], found["method"]) == (None, "not readable")


@linux_only
def test_the_peak_of_this_process_can_be_set_back():
    with mmap.mmap(-1, 64 * MIB) as block:  # not `bytearray`, which may take what another test left to this process
        block.write(b"1" * len(block))
        before = peak_process_bytes()
    if not reset_peak_process_bytes():
        pytest.skip("/proc/self/clear_refs cannot be written here")
    assert peak_process_bytes() < before - 32 * MIB
    assert abs(peak_process_bytes() - resident_bytes()) < 8 * MIB


def ended(status="ok", result=None):
    return Outcome(
        status=status, reason="", result=result, peak_process_bytes=1, wall_s=2.0, started_at="a", ended_at="b"
    )


def record_of(tmp_path, monkeypatch, *outcomes, barred=()):
    """Runs the script with these outcomes in place of processes; gives its record's path and what was started."""
    started, waiting = [], iter(outcomes)

    def start(target, arguments, **options):
        started.append((target.split(":")[1], options.get("environment")))
        return next(waiting)

    monkeypatch.setattr(measure_memory, "run_isolated", start)
    calibration, record = tmp_path / "calibration.json", tmp_path / "record.json"
    calibration.write_text(json.dumps({"status": "ok", "barred": list(barred)}))
    measure_memory.main(
        tokens=tmp_path,
        corpus=tmp_path,
        device=tmp_path,
        calibration=calibration,
        record=record,
        spec={"study": "tiny", "memory": to_json(MEMORY), "code": "c0de", "environment": {}},
    )
    return record, started


FOUND = {"peak_allocated_bytes": 3 * MIB, "phases": dict.fromkeys(PHASES, MIB), "method": "events", "data_bytes": 0}
GREW = {"footprint_bytes": 4 * MIB, "data_bytes": 1, "method": "VmHWM"}


def test_the_record_holds_both_processes_and_a_failed_second_one_costs_nothing(tmp_path, monkeypatch):
    record, started = record_of(tmp_path, monkeypatch, ended(result=FOUND), ended(result=GREW))
    assert started == [("probe_allocated", None), ("probe_footprint", measure_memory.TIGHT_MALLOC)]
    row = memory_row(record)
    assert (row["peak_allocated_bytes"], row["footprint_bytes"], row["footprint_status"]) == (3 * MIB, 4 * MIB, "ok")
    assert row["forward_peak_bytes"] == MIB
    assert row["peak_reserved_bytes"] is None
    record, _ = record_of(tmp_path, monkeypatch, ended(result=FOUND), ended("oom"))
    row = memory_row(record)
    assert (row["status"], row["footprint_status"], row["footprint_bytes"]) == ("ok", "oom", None)
    assert row["peak_allocated_bytes"] == 3 * MIB


def test_what_is_barred_or_failed_is_a_row_without_numbers(tmp_path, monkeypatch):
    pair = {"precision": "fp32", "execution": "eager", "reason": "leaks"}
    record, started = record_of(tmp_path, monkeypatch, barred=[pair])
    assert not started
    row = memory_row(record)
    assert (row["status"], row["reason"], row["peak_allocated_bytes"]) == ("barred", "leaks", None)
    record, started = record_of(tmp_path, monkeypatch, ended("timeout"))
    assert len(started) == 1
    assert memory_row(record)["footprint_status"] is None


def test_a_timed_cell_takes_what_it_could_not_count_itself():
    def timed(cell, peak=None):
        return {
            "device": "cpu",
            "cell": cell,
            "peak_allocated_bytes": peak,
            "memory_method": "counters" if peak else "",
        }

    cells = [timed("a"), timed("b", 7), timed("c"), timed("d")]
    memory = [{"device": "cpu", "cell": cell, "status": "ok", "peak_allocated_bytes": 9, "memory_method": "events"}
              for cell in "ab"]  # fmt: skip
    memory += [{"device": "cpu", "cell": "c", "status": "oom"}, {**memory[0], "device": "mps", "cell": "d"}]
    fill_memory(cells, memory)
    assert [cell["peak_allocated_bytes"] for cell in cells] == [9, 7, None, None]
    assert cells[0]["memory_method"] == "events, in a process of its own"
    assert cells[1]["memory_method"] == "counters"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("execution", ["eager", "graphed"])
def test_on_cuda_counters_tell_the_peak(tmp_path, execution):
    device = dataclasses.replace(CPU, id="cuda0", type="cuda", index=0)
    step = dataclasses.replace(STEP, batch_size=16, execution=execution)
    first = allocated(tmp_path, device=device, step=step)
    assert first["data_bytes"] > 0
    assert first["peak_allocated_bytes"] <= first["peak_reserved_bytes"]
    assert (first["phases"] is None) == (execution == "graphed")


def test_the_environment_reaches_the_child_alone():
    outcome = run_isolated(
        "tests.isolation_targets:variables",
        {"names": ["ASSAY_TEST_VARIABLE", "OMP_NUM_THREADS"]},
        device=CPU,
        timeout_s=60.0,
        environment={"ASSAY_TEST_VARIABLE": "17"},
    )
    assert outcome.result == {"ASSAY_TEST_VARIABLE": "17", "OMP_NUM_THREADS": "1"}
    assert "ASSAY_TEST_VARIABLE" not in os.environ
