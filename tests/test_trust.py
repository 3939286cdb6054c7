"""The benchmark of trust: Assay notices every fault, and nothing where nothing is wrong; figures of the stated form."""

import json

import pytest

from benchmarks import trust, trust_sides
from benchmarks.simulated_device import STEP_S, Machine, nanogpt_way, steps, torch_timer
from benchmarks.trust_faults import MEASURE, all_faults
from workflow_scripts.lib.specs import DeviceSpec, ModelShape, StepSpec, to_json

CPU = DeviceSpec(id="cpu", type="cpu", threads=1)


@pytest.fixture(scope="module")
def faults():
    return {fault.name: fault for fault in all_faults()}


def test_assay_notices_every_fault_and_nothing_where_nothing_is_wrong(faults):
    said = {name: fault.assay.said for name, fault in faults.items()}
    assert said.pop("none") == "right"
    assert len(said) == 8
    assert set(said.values()) == {"noticed"}, {name: fault.assay for name, fault in faults.items()}


def test_the_others_are_told_fairly_what_they_get_right(faults):
    assert {faults["none"].torch_timer.said, faults["none"].nanogpt.said} == {"right"}
    assert faults["cold_first_step"].torch_timer.said == "right"  # its timer warms up
    assert faults["cold_first_step"].nanogpt.said == "right"  # the last line of a log is not the first
    assert faults["unsynchronised"].torch_timer.said == "wrong"
    assert faults["unsynchronised"].nanogpt.said == "wrong"
    assert faults["leaking_mask"].torch_timer.said == "does not look"


def test_a_machine_takes_its_time_only_where_one_waits_for_it():
    machine = Machine(iter([1.0, 1.0, 1.0]))
    machine.run()
    machine.run()
    assert machine.now < 0.001
    machine.synchronise()
    assert machine.now == pytest.approx(2.0, abs=1e-4)
    deaf = Machine(iter([1.0]), synchronises=False)
    deaf.run()
    deaf.synchronise()
    assert deaf.now < 0.001


def test_the_tools_agree_on_a_steady_machine():
    def steady():
        return Machine(steps(lambda n: 1.0, noise=0.0))

    assert torch_timer(steady(), 1.0)[0] == pytest.approx(STEP_S, rel=0.01)
    assert nanogpt_way(steady())[0] == pytest.approx(STEP_S, rel=0.01)


def test_one_process_times_the_same_step_in_three_ways(monkeypatch):
    monkeypatch.setattr(trust_sides, "LOGGED", 2)
    shape = ModelShape(
        architecture="gpt2", n_layer=1, n_head=2, n_embd=16, n_inner=32, vocab_size=40, sequence_length=8, bias=False
    )
    step = StepSpec(batch_size=2, precision="fp32", execution="eager")
    specs = {"model": to_json(shape), "step": to_json(step), "device": to_json(CPU), "measure": to_json(MEASURE)}
    for turn in (0, 1):
        found = trust_sides.time_both_ways({**specs, "turn": turn}, lambda message: None)
        assert len(found["logged"]) == 3
        assert found["log"] == found["logged"][-1]
        assert all(found[way] > 0 for way in trust.WAYS)


def test_figures_have_the_stated_form_and_lack_what_was_not_measured(faults, tmp_path, capsys):
    found = [{"assay": 1.0, "log": 1.1, "mean": 1.0}, {"assay": 1.005, "log": 0.9, "mean": 1.1}]
    report = json.loads(json.dumps(trust.summarise(list(faults.values()), found, CPU)))
    assert set(report) == {"figures", "targets", "met", "conditions"}
    assert report["figures"]["assay.between"] == pytest.approx(0.005)
    assert report["figures"]["assay.noticed"] == report["targets"]["assay.noticed"] == 8
    assert set(report["met"]) == set(report["targets"])
    assert "assay.between" not in report["targets"]  # stated for GPUs only
    gpu = DeviceSpec(id="cuda0", type="cuda", threads=1, index=0)
    assert trust.summarise(list(faults.values()), found, gpu)["met"]["assay.between"] is True
    assert "log.median_s" not in trust.summarise(list(faults.values()), [], CPU)["figures"]
    trust.print_faults(list(faults.values()))
    trust.print_spreads(report["figures"], None)
    printed = capsys.readouterr().out
    assert "Assay                  noticed 8 of 8" in printed
    assert "0.50%" in printed
