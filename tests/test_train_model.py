"""The script that trains a run: all its files, whatever became of it, and what a person hears meanwhile."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
from safetensors import safe_open

from tests import tiny_run
from workflow_scripts.lib import training
from workflow_scripts.lib.history import StepRow
from workflow_scripts.lib.outcome import Outcome, classify
from workflow_scripts.lib.progress import Listener, progress_line
from workflow_scripts.lib.step import TrainStep
from workflow_scripts.train_model import main

ROOT = Path(__file__).parents[1]


def job(folder: Path, **changes) -> dict:
    """Runs the script as the rule does; gives the record."""
    arguments = tiny_run.arguments(folder, **changes)
    files = {key: Path(arguments[key]) for key in ("tokens", "corpus", "metrics", "weights", "samples")}
    spec = {"run": arguments["run"], "study": "tiny", "code": "c0de", "environment": {"torch": "x"}}
    inputs = {"device": folder / "device.json", "calibration": tiny_run.write_calibration(folder.parent)}
    main(**files, **inputs, record=folder / "run.json", spec=spec)
    return json.loads((folder / "run.json").read_text())


def test_the_script_leaves_record_and_files_and_no_checkpoint(tmp_path):
    record = job(tmp_path / "run", n_steps=11)
    assert (record["status"], record["kind"], record["id"], record["study"]) == ("ok", "run", "tiny-s1", "tiny")
    assert record["result"]["n_steps"] == 11
    assert record["result"]["observed"]["threads"] == 1
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "metrics.csv",
        "model.safetensors",
        "run.json",
        "samples.txt",
    ]


def in_this_process(target, arguments, *, device, timeout_s, on_message, **_):
    """Stands for `run_isolated` where another process would only cost time."""
    assert target == "workflow_scripts.lib.training:train"
    sent = []

    def send(message):
        sent.append(message)
        on_message(message)

    ended = {"peak_process_bytes": None, "wall_s": 1.0, "started_at": "then", "ended_at": "now"}
    try:
        return Outcome(status="ok", reason="", result=training.train(arguments, send), **ended)
    except Exception as error:
        status, reason = classify(error)
        partial = [message["partial"] for message in sent if "partial" in message][-1]
        return Outcome(status=status, reason=reason, result=partial, **ended)


def test_a_run_that_diverges_still_leaves_all_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr("workflow_scripts.train_model.run_isolated", in_this_process)
    wild = dataclasses.replace(
        tiny_run.ADAMW, name="sgd", learning_rate=1e30, min_learning_rate=1e30, grad_clip=0.0, warmup_steps=0
    )
    record = job(tmp_path / "run", optimizer=wild)
    assert record["status"] == "diverged"
    assert record["reason"].startswith("diverged at step")
    rows = tiny_run.table({"metrics": tmp_path / "run" / "metrics.csv"})
    assert len(rows) == record["result"]["diverged_at_step"] - 1 == record["result"]["n_steps"]
    assert float(rows[-1]["loss"]) == pytest.approx(record["result"]["last_finite_loss"], rel=1e-6)
    assert "diverged" in (tmp_path / "run" / "samples.txt").read_text()
    with safe_open(tmp_path / "run" / "model.safetensors", "np") as weights:
        assert list(weights.keys()) == []
        assert weights.metadata()["status"] == "diverged"


def test_a_run_cut_short_keeps_what_it_had_and_goes_on_later(tmp_path, monkeypatch):
    def cut_at_25(step):
        if step.steps_done == 25:
            raise RuntimeError("cut short")
        run(step)

    run = TrainStep.run
    monkeypatch.setattr("workflow_scripts.train_model.run_isolated", in_this_process)
    monkeypatch.setattr(TrainStep, "run", cut_at_25)
    record = job(tmp_path / "run")
    assert (record["status"], record["result"]["n_steps"]) == ("error", 20)
    rows = tiny_run.table({"metrics": tmp_path / "run" / "metrics.csv"})
    assert [int(row["step"]) for row in rows] == list(range(1, 21))
    assert "cut short" in (tmp_path / "run" / "samples.txt").read_text()
    assert (tmp_path / "run" / "checkpoint").exists()

    monkeypatch.setattr(TrainStep, "run", run)
    record = job(tmp_path / "run", timeout_s=200.0)
    assert (record["status"], record["result"]["resumed_at_steps"]) == ("ok", [20])
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_a_person_hears_of_it_every_ten_seconds_not_more_often(monkeypatch):
    lines = []
    listener = Listener("train wide-s1 on cpu", lines.append)
    message = {"progress": {"step": 420, "n_steps": 2000, "loss": 2.309, "tokens_per_s": 12345.6, "eta_s": 99.7}}
    listener.hear(message)
    listener.hear(message)
    listener.hear({"notice": "goes on"})
    listener.hear({"rows": [[1, 64, 0.1, 2.0, 1e-3, 1.0, 0.1, None]]})
    assert lines == [
        "train wide-s1 on cpu: step 420/2000, loss 2.31, 12,300 tokens/s, 1:40 left",
        "train wide-s1 on cpu: goes on",
    ]
    assert listener.rows == [StepRow(1, 64, 0.1, 2.0, 1e-3, 1.0, 0.1)]
    assert progress_line(step=1, n_steps=2, loss=10.0, tokens_per_s=999_500, eta_s=3661).endswith("1:01:01 left")


def test_rows_are_written_with_the_digits_that_they_have():
    row = StepRow(
        3, 24576, 0.030623519897460937, 3.459430694580078, 6.557377049180328e-05, math.inf, 0.0149692478, None
    )
    assert row.written() == (3, 24576, 0.0306235, 3.459431, 6.55738e-05, math.inf, 0.0149692, None)
