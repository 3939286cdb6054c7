"""What a calibration bars is recorded with its reason, and not measured; what follows from how calibrating ended."""

import json

import pytest

from tests.tiny_run import CELL
from workflow_scripts import benchmark_cell, profile_model, train_model
from workflow_scripts.lib.barring import barred_outcome, barred_reason, hopeless_outcome
from workflow_scripts.lib.outcome import Outcome
from workflow_scripts.lib.specs import to_json
from workflow_scripts.lib.verdicts import announcements, device_verdict, pairs, verdict

FINE = {"status": "ok", "reason": "", "barred": [], "unavailable": []}
LEAKY = {**FINE, "barred": [{"precision": "bf16", "execution": "compiled", "reason": "gpt2: the causal mask leaks"}]}
UNSYNCHRONISED = {**FINE, "status": "barred", "reason": "not synchronised"}


def outcome(status="ok", reason="", result=None):
    return Outcome(
        status=status, reason=reason, result=result, peak_process_bytes=None, wall_s=1.0, started_at="", ended_at=""
    )


@pytest.fixture
def calibrated(tmp_path):
    def write(values):
        path = tmp_path / "calibration.json"
        path.write_text(json.dumps(values), encoding="utf-8")
        return path

    return write


def test_only_the_pair_that_failed_is_barred():
    assert barred_reason(LEAKY, "bf16", "compiled") == "gpt2: the causal mask leaks"
    assert barred_reason(LEAKY, "bf16", "eager") is None
    assert barred_reason(LEAKY, "fp32", "compiled") is None


def test_a_device_that_is_not_synchronised_is_barred_whole(calibrated):
    found = barred_outcome(calibrated(UNSYNCHRONISED), {"precision": "fp32", "execution": "eager"})
    assert found.status == "barred"
    assert found.reason == "the device is barred: not synchronised"
    assert found.result is None


def test_what_passed_is_measured(calibrated):
    assert barred_outcome(calibrated(FINE), {"precision": "fp32", "execution": "eager"}) is None


def product(precision, best):
    return {"quantity": "matrix_product", "precision": precision, "best": best}


def test_what_cannot_end_in_time_is_not_tried_and_says_why(calibrated):
    slow = calibrated({**FINE, "ceilings": [product("fp32", 1e5), product("bf16", 1e12)]})
    found = hopeless_outcome(slow, CELL)
    assert found.status == "timeout"
    assert found.result is None
    assert "timeout_s 60" in found.reason


def test_what_may_end_in_time_or_has_no_ceiling_is_tried(calibrated):
    assert hopeless_outcome(calibrated({**FINE, "ceilings": [product("fp32", 1e9)]}), CELL) is None
    assert hopeless_outcome(calibrated({**FINE, "ceilings": [product("bf16", 1.0)]}), CELL) is None
    assert hopeless_outcome(calibrated({**FINE, "ceilings": [product("fp32", None)]}), CELL) is None


STEP = to_json(CELL.step) | {"precision": "bf16", "execution": "compiled"}
DEVICE = {"id": "cpu", "type": "cpu", "threads": 1, "index": None}


@pytest.mark.parametrize(
    ("script", "key", "spec", "outputs"),
    [
        (benchmark_cell, "cell", to_json(CELL), {"record": "record.json"}),
        (
            train_model,
            "run",
            {"id": "wide-s1", "timeout_s": 1},
            {
                "record": "record.json",
                "metrics": "metrics.csv",
                "weights": "model.safetensors",
                "samples": "samples.txt",
            },
        ),
        (
            profile_model,
            "profile",
            {"name": "wide", "timeout_s": 1},
            {"record": "record.json", "operators": "operators.csv", "trace": "trace.json.gz"},
        ),
    ],
)
def test_a_barred_measurement_leaves_all_its_files_and_starts_nothing(
    tmp_path, monkeypatch, calibrated, script, key, spec, outputs
):
    def never(*arguments, **more):
        raise AssertionError("it was measured")

    monkeypatch.setattr(script, "run_isolated", never)
    paths = {name: tmp_path / file for name, file in outputs.items()}
    inputs = {name: tmp_path / name for name in ("tokens", "corpus", "device")}
    whole = {**spec, "step": STEP, "device": DEVICE}
    script.main(
        **inputs,
        **paths,
        calibration=calibrated(LEAKY),
        spec={key: whole, "study": "s", "code": "c", "environment": {}},
    )
    record = json.loads(paths["record"].read_text(encoding="utf-8"))
    assert (record["status"], record["reason"]) == ("barred", "gpt2: the causal mask leaks")
    assert all(path.exists() for path in paths.values())


IDENTIFIED = {"status": "ok", "reason": ""}
SYNCHRONISED = {"synchronisation": {"synchronised": True, "reason": ""}, "ceilings": []}


@pytest.mark.parametrize(
    ("identified", "ceilings", "status", "words"),
    [
        (IDENTIFIED, outcome(result=SYNCHRONISED), "ok", ""),
        (IDENTIFIED, outcome("timeout", "stopped after 600 s", SYNCHRONISED), "ok", "600 s"),
        (IDENTIFIED, outcome("killed", "killed by SIGKILL"), "barred", "SIGKILL"),
        (IDENTIFIED, outcome("unavailable", "no driver"), "unavailable", "no driver"),
        ({"status": "barred", "reason": "another GPU"}, outcome(result=SYNCHRONISED), "barred", "another GPU"),
        (
            IDENTIFIED,
            outcome(result={"synchronisation": {"synchronised": False, "reason": "not synchronised"}, "ceilings": []}),
            "barred",
            "not synchronised",
        ),
    ],
)
def test_the_verdict_on_a_device(identified, ceilings, status, words):
    found, reason = device_verdict(identified, ceilings)
    assert found == status
    assert words in reason


@pytest.mark.parametrize(
    ("ended", "kind", "words"),
    [
        (outcome(result={"checks": [{"failures": []}]}), "ok", ""),
        (outcome(result={"checks": [{"failures": []}, {"failures": ["llama: leaks"]}]}), "barred", "llama: leaks"),
        (outcome("unavailable", "no C++ compiler"), "unavailable", "no C++ compiler"),
        (outcome("killed", "killed by SIGSEGV"), "barred", "did not end: killed, killed by SIGSEGV"),
    ],
)
def test_the_verdict_on_a_pair(ended, kind, words):
    found, reason = verdict(ended)
    assert found == kind
    assert words in reason


def test_architectures_are_checked_together_for_each_pair():
    combinations = [["gpt2", "bf16", "eager"], ["gpt2", "fp32", "eager"], ["llama", "fp32", "eager"]]
    assert pairs(combinations) == {("bf16", "eager"): ["gpt2"], ("fp32", "eager"): ["gpt2", "llama"]}


def test_a_person_is_told_of_ceilings_disturbance_and_bars():
    ceiling = {"value": 2e9, "unit": "FLOP/s", "precision": "fp32", "conditions": {"others_cores": 1.6}}
    lines = list(announcements({**LEAKY, "ceilings": [ceiling]}))
    assert lines[0] == "at best fp32 2 GFLOP/s"
    assert "1.6 cores busy" in lines[1]
    assert lines[2] == "bf16 compiled is barred: gpt2: the causal mask leaks"
