"""Calibration: the arithmetic on fake clocks, the self-check on a device that does not wait, one real quick pass."""

import csv
import json
import math

import pytest

from tests.checkout import ROOT
from tests.test_timing import FakeDevice
from tests.tiny_run import CPU
from workflow_scripts import calibrate_device, collect_ceilings
from workflow_scripts.lib import calibration
from workflow_scripts.lib.calibration import measure_ceilings, slowness, summarise
from workflow_scripts.lib.outcome import Outcome
from workflow_scripts.lib.provenance import modules_of
from workflow_scripts.lib.self_check import check_clocks
from workflow_scripts.lib.specs import to_json
from workflow_scripts.lib.timing import Samples


def checked(device, synchronise, launch=None):
    run = launch or (lambda scale: device.launch(0.01 * scale))
    return check_clocks(run, synchronise, {"host": device.clock()})


def test_a_device_that_waits_is_synchronised():
    device = FakeDevice([0.01], queued=True)
    found = checked(device, device.synchronise)
    assert found["synchronised"]
    assert found["ratios"]["host"] == pytest.approx(2.0, abs=0.01)
    assert found["factors"] == {"host": 1}
    assert found["reason"] == ""


def test_a_device_whose_synchronisation_is_skipped_is_caught():
    device = FakeDevice([0.01], queued=True)
    found = checked(device, lambda: None)
    assert not found["synchronised"]
    assert found["ratios"]["host"] == pytest.approx(1.0, abs=0.01)
    assert found["factors"] == {"host": 16}
    assert "not synchronised: twice the work took 1.00 times as long by the host clock" in found["reason"]


def test_one_clock_of_two_that_does_not_wait_is_named():
    device = FakeDevice([0.01], queued=True)
    skipping = FakeDevice([0.01], queued=True)
    found = check_clocks(
        lambda scale: (device.launch(0.01 * scale), skipping.launch(0.01 * scale)),
        device.synchronise,
        {"event": device.clock(), "host": skipping.clock()},
    )
    assert not found["synchronised"]
    assert "by the host clock" in found["reason"]
    assert "event" not in found["reason"]


def test_a_busy_machine_is_given_more_work_before_it_is_called_unsynchronised():
    device = FakeDevice([0.01])
    found = checked(device, device.synchronise, lambda scale: device.launch(0.03 + 0.01 * scale))
    assert found["synchronised"]
    assert found["factors"]["host"] > 1


def test_a_ratio_that_is_too_large_bars_nothing():
    device = FakeDevice([0.01])
    found = checked(device, device.synchronise, lambda scale: device.launch(0.01 * scale**2))
    assert found["synchronised"]
    assert found["ratios"]["host"] == pytest.approx(4.0, abs=0.01)


def samples(times):
    return Samples(cold_s=[9.0], samples_s=times, stop="budget", block_size=1, elapsed_s=99.0)


def test_a_rate_is_work_over_the_median_time():
    found = summarise(samples([2.0, 1.0, 4.0, 2.0, 2.0, 2.0]), 8.0, "FLOP/s")
    assert found["value"] == 4.0
    assert (found["low"], found["high"], found["best"]) == (2.0, 8.0, 8.0)
    assert found["n"] == 6
    assert found["samples_s"] == [2.0, 1.0, 4.0, 2.0, 2.0, 2.0]


def test_an_overhead_is_time_over_operators():
    found = summarise(samples([2.0, 1.0, 4.0, 2.0, 2.0, 2.0]), 1000, "s")
    assert found["value"] == 0.002
    assert (found["low"], found["high"], found["best"]) == (0.001, 0.004, 0.001)


def test_a_device_that_slows_down_shows_it():
    found = summarise(samples([1.0] * 10 + [2.0] * 10), 1.0, "FLOP/s")
    assert (found["first_third"], found["last_third"]) == (1.0, 0.5)


@pytest.mark.parametrize("times", [[], [0.0]])
def test_what_was_not_seen_is_missing_and_not_zero(times):
    found = summarise(samples(times), 1.0, "FLOP/s")
    assert found["value"] is found["low"] is found["best"] is None


def test_a_slow_precision_is_told():
    assert slowness("fp32", {"fp32": 1e11}) is None
    assert "4.5 times the rate of fp32" in slowness("bf16", {"fp32": 1e11, "bf16": 4.5e11})
    assert "many times slower (20 times)" in slowness("fp16", {"fp32": 1e11, "fp16": 5e9})
    assert slowness("tf32", {"fp32": 1e11}) is None


@pytest.fixture(scope="module")
def measured():
    messages = []
    arguments = {"device": to_json(CPU), "precisions": ["bf16", "tf32"], "sustain_s": 0.02}
    patch = pytest.MonkeyPatch()
    patch.setattr(calibration, "LEAST_COPY_BYTES", 2**20)
    patch.setattr(calibration, "COPY_BYTES_PER_THREAD", 2**20)
    patch.setitem(calibration.SIDES, "cpu", (64, 128))
    result = measure_ceilings(arguments, messages.append)
    patch.undo()
    return result, messages


def test_every_quantity_is_measured_with_its_conditions(measured):
    result, messages = measured
    assert [(one["quantity"], one["precision"]) for one in result["ceilings"]] == [
        ("matrix_product", "fp32"),
        ("matrix_product", "bf16"),
        ("matrix_product", "tf32"),
        ("copy", None),
        ("operator", None),
        ("operator_and_backward", None),
    ]
    for one in result["ceilings"]:
        if one["precision"] != "tf32":
            assert one["value"] > 0
            assert one["best"] > 0
            assert one["n"] == len(one["samples_s"]) > 0
            assert one["conditions"]["threads"] == 1
            assert one["conditions"]["sustained_s"] >= 0.004
    assert len([message for message in messages if "partial" in message]) == 7
    assert any("bf16 run at" in message.get("notice", "") for message in messages)
    json.dumps(result, allow_nan=False)


def test_a_precision_that_a_device_lacks_has_no_value(measured):
    tf32 = measured[0]["ceilings"][2]
    assert tf32["value"] is None
    assert tf32["n"] == 0
    assert "tf32 exists on NVIDIA GPUs" in tf32["reason"]


SPEC = {
    "device": to_json(CPU),
    "environment": {"name": "NVIDIA H200", "torch": "2.13.0"},
    "code": "c0de",
    "combinations": [["gpt2", "bf16", "eager"], ["gpt2", "fp32", "graphed"]],
    "vocab_size": 40,
    "sustain_s": 0.02,
    "operators_s": 0.5,
}


@pytest.fixture
def ended(tmp_path, monkeypatch, measured):
    """Calibrates with measuring processes of which a test says how they end."""

    def calibrate(**outcomes):
        device, path = tmp_path / "device.json", tmp_path / "calibration.json"
        device.write_text(json.dumps({"status": "ok", "reason": ""}), encoding="utf-8")

        def run_isolated(target, arguments, **more):
            named = {calibrate_device.CEILINGS: "ceilings", calibrate_device.OPERATORS: "operators"}
            times = {"peak_process_bytes": None, "wall_s": 1.0, "started_at": "then", "ended_at": "later"}
            if target in named:
                status, reason, result = outcomes.get(named[target], ("ok", "", {}))
                return Outcome(status=status, reason=reason, result=result, **times)
            tried = []
            for pair in arguments["pairs"]:
                status, reason, result = outcomes.get(pair["execution"], ("ok", "", {"checks": [{"failures": []}]}))
                if status == "killed":
                    return Outcome(status=status, reason=reason, result={"pairs": tried}, **times)
                tried.append({"status": status, "reason": reason, "result": result, "wall_s": 0.5})
                if status == "error":
                    break
            return Outcome(status="ok", reason="", result={"pairs": tried}, **times)

        monkeypatch.setattr(calibrate_device, "run_isolated", run_isolated)
        calibrate_device.main(device=device, calibration=path, spec=SPEC)
        return json.loads(path.read_text(encoding="utf-8"))

    return calibrate


def test_what_fails_is_barred_and_what_cannot_run_is_unavailable(ended, measured):
    found = ended(
        ceilings=("ok", "", measured[0]),
        eager=("ok", "", {"checks": [{"failures": ["gpt2: the causal mask leaks"]}]}),
        graphed=("unavailable", "no CUDA graph", None),
    )
    assert found["status"] == "ok"
    assert found["barred"] == [{"precision": "bf16", "execution": "eager", "reason": "gpt2: the causal mask leaks"}]
    assert found["unavailable"] == [{"precision": "fp32", "execution": "graphed", "reason": "no CUDA graph"}]
    assert found["spec"]["vocab_size"] == 40
    assert len(found["ceilings"]) == 6


@pytest.mark.parametrize("status", ["killed", "error"])
def test_a_check_that_breaks_its_process_bars_itself_and_the_others_are_made(ended, measured, status):
    found = ended(ceilings=("ok", "", measured[0]), eager=(status, "no more", None))
    assert [(pair["precision"], pair["execution"]) for pair in found["barred"]] == [("bf16", "eager")]
    assert [(check["precision"], check["execution"]) for check in found["checks"]] == [("fp32", "graphed")]
    named = [(part["part"], part.get("execution")) for part in found["parts"]]
    assert named == [("ceilings", None), ("operators", None), ("check", "eager"), ("check", "graphed")]


def test_a_device_that_is_not_synchronised_is_barred_and_nothing_more_is_tried(ended):
    skipped = {"synchronised": False, "reason": "not synchronised"}
    found = ended(ceilings=("ok", "", {"synchronisation": skipped, "ceilings": []}))
    assert (found["status"], found["reason"]) == ("barred", "not synchronised")
    assert found["checks"] == []


def test_ceilings_stand_beside_the_datasheet_of_exactly_that_device(tmp_path, ended, measured):
    ended(ceilings=("ok", "", measured[0]))
    table = tmp_path / "ceilings.csv"
    collect_ceilings.main(
        recordings=[],
        calibrations=[tmp_path / "calibration.json"],
        datasheets=ROOT / "resources/datasheets.csv",
        ceilings_table=table,
        spec={},
    )
    with table.open(encoding="utf-8", newline="") as file:
        rows = {(row["quantity"], row["precision"]): row for row in csv.DictReader(file)}
    assert float(rows["matrix_product", "bf16"]["datasheet"]) == 989.5e12
    assert rows["matrix_product", "bf16"]["source"] == "NVIDIA H200 Tensor Core GPU Datasheet"
    assert float(rows["copy", ""]["datasheet"]) == 4.8e12
    assert rows["operator", ""]["datasheet"] == ""
    assert rows["matrix_product", "tf32"]["value"] == ""
    assert "tf32 exists" in rows["matrix_product", "tf32"]["reason"]


def test_every_stated_figure_cites_its_source_and_none_stands_twice():
    with (ROOT / "resources/datasheets.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({(row["device"], row["precision"]) for row in rows}) == len(rows)
    for row in rows:
        figures = [row[column] for column in ("flop_per_s", "bytes_per_s") if row[column]]
        assert len(figures) == bool(row["source"])
        assert all(math.isfinite(float(figure)) and float(figure) > 1e11 for figure in figures)


def test_the_digest_contains_the_step_that_is_checked():
    names = {path.stem for path in modules_of("workflow_scripts/calibrate_device.py")}
    assert {"step", "model", "calibration", "correctness", "timing"} <= names
    assert not names & {"plotting", "records", "job", "machine_state"}


def test_no_operator_is_said_to_move_bytes_faster_than_a_copy():
    """On an H200 the gradient of an addition, handed on in 0.4 µs, once moved 729 TB/s."""

    def cost(kind, direction, dims, seconds):
        return {"kind": kind, "direction": direction, "dims": dims, "seconds": seconds, "precision": "fp32", "n": 3}

    copy = {"quantity": "copy", "precision": None, "unit": "bytes/s", "value": 4e12, "best": 4e12}
    operators = [
        cost("residual", "backward", [32768, 2048], 4e-7), cost("residual", "forward", [512, 128], 1e-7),
        cost("residual", "forward", [32768, 2048], 3e-4), cost("linear", "forward", [64, 64, 64], 1e-8),
        cost("linear", "forward", [1024, 1024, 1024], 1e-3),
    ]  # fmt: skip
    rows = collect_ceilings.best_operators({"device": "gpu", "ceilings": [copy], "operators": operators})
    told = {row["quantity"]: row["value"] for row in rows}
    assert told == pytest.approx({"residual_forward": 12 * 2**26 / 3e-4, "linear_forward": 2 * 64**3 / 1e-8})
