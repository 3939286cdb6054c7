"""Training: resumed equals uninterrupted bit for bit; each second and each failure stands where it belongs."""

import dataclasses
import functools
import itertools
import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.torch import load_file

from tests import tiny_run
from workflow_scripts.lib import step_log, training
from workflow_scripts.lib.history import StepRow
from workflow_scripts.lib.outcome import Diverged
from workflow_scripts.lib.step import TrainStep
from workflow_scripts.lib.time_sheet import TimeSheet

ROOT = Path(__file__).parents[1]
DROPOUT = {"model": dataclasses.replace(tiny_run.SHAPE, dropout=0.1)}
MEASURED = ("elapsed_s", "step_time_s")
KILLED_IN_A_STEP = """
import json, os, signal, sys
from workflow_scripts.lib.step import TrainStep
from workflow_scripts.lib.training import train

run = TrainStep.run
def die_at(step):
    if step.steps_done == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    run(step)
TrainStep.run = die_at
train(json.loads(sys.argv[1]), lambda message: None)
"""


def computed(arguments: dict) -> list[dict[str, str]]:
    return [{key: value for key, value in row.items() if key not in MEASURED} for row in tiny_run.table(arguments)]


def train(arguments: dict) -> tuple[dict, list[dict]]:
    messages = []
    return training.train(arguments, messages.append), messages


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    arguments = tiny_run.arguments(tmp_path_factory.mktemp("corpus") / "run", **DROPOUT)
    result, messages = train(arguments)
    return arguments, result, messages


def test_a_run_learns_and_leaves_its_whole_history(uninterrupted):
    arguments, result, messages = uninterrupted
    rows = tiny_run.table(arguments)
    assert list(rows[0]) == list(StepRow._fields)
    assert [int(row["step"]) for row in rows] == list(range(1, 31))
    assert [int(row["tokens"]) for row in rows] == [64 * step for step in range(1, 31)]
    assert [row["step"] for row in rows if row["val_loss"]] == ["10", "20", "30"]
    assert float(rows[-1]["val_loss"]) < float(rows[0]["loss"]) - 0.3
    assert all(float(row["grad_norm"]) > 0 and float(row["step_time_s"]) > 0 for row in rows)
    assert float(rows[2]["learning_rate"]) == pytest.approx(3e-3, rel=0.4)
    summed_s = sum(float(row["step_time_s"]) for row in rows[1:])
    assert float(rows[-1]["elapsed_s"]) == pytest.approx(summed_s, abs=len(rows) * 1e-7)  # each is written to 0.1 µs
    assert len(Path(arguments["samples"]).read_text()) == tiny_run.RUN.sample_tokens
    assert result["final_val_loss"] == float(rows[-1]["val_loss"])
    assert result["best_val_loss"] == min(float(row["val_loss"]) for row in rows if row["val_loss"])
    assert (result["n_steps"], result["n_tokens"], result["eval_tokens"]) == (30, 1920, 96)
    assert result["first_step_s"] == pytest.approx(float(rows[0]["step_time_s"]), abs=1e-7)
    assert result["resumed_at_steps"] == []
    json.dumps(result, allow_nan=False)
    sent = [StepRow(*row) for message in messages for row in message.get("rows", ())]
    assert [row.step for row in sent] == list(range(1, 31))
    assert [str(row.written()[3]) for row in sent] == [row["loss"] for row in rows]
    progress = [message["progress"] for message in messages if "progress" in message]
    assert (progress[-1]["step"], progress[-1]["n_steps"], progress[-1]["eta_s"]) == (30, 30, 0.0)


def test_weights_are_the_model_that_made_the_final_loss(uninterrupted):
    arguments, result, _ = uninterrupted
    weights = load_file(arguments["weights"])
    decoder = training.TrainStep.build(
        DROPOUT["model"],
        tiny_run.STEP,
        tiny_run.ADAMW,
        tiny_run.CPU,
        tokens=np.arange(99) % 9,
        n_steps=1,
        seed=5,
    ).decoder
    decoder.load_state_dict(weights)
    corpus = json.loads(Path(arguments["corpus"]).read_text())
    tokens = training.load_tokens(Path(arguments["tokens"]), corpus, "validation")
    windows = training.choose_windows(tokens, tiny_run.RUN.eval_windows, 16)
    loss = training.validation_loss(decoder, windows, device="cpu", chunk=4)
    assert loss == result["final_val_loss"]
    assert windows.sha256 == result["eval_windows_sha256"]


def test_energy_is_that_of_further_steps_which_nothing_keeps(uninterrupted, tmp_path, monkeypatch):
    arguments = tiny_run.arguments(tmp_path / "run", **DROPOUT)
    joules = itertools.count(100.0)
    monkeypatch.setattr(training, "energy_j", lambda device: next(joules))
    result, _ = train(arguments)
    assert result["energy"]["n_steps"] > 1
    assert result["energy_s"] >= result["energy"]["elapsed_s"] >= 1.0
    assert computed(arguments) == computed(uninterrupted[0])
    assert Path(arguments["weights"]).read_bytes() == Path(uninterrupted[0]["weights"]).read_bytes()
    assert result["final_val_loss"] == uninterrupted[1]["final_val_loss"]


def test_killed_and_resumed_is_the_uninterrupted_run_bit_for_bit(uninterrupted, tmp_path):
    arguments = tiny_run.arguments(tmp_path / "run", **DROPOUT)
    command = [sys.executable, "-c", KILLED_IN_A_STEP, json.dumps(arguments), "25"]
    assert subprocess.run(command, cwd=ROOT).returncode == -signal.SIGKILL
    assert not Path(arguments["metrics"]).exists()
    result, messages = train(arguments)
    assert result["resumed_at_steps"] == [20]
    assert "after step 20" in messages[0]["notice"]
    assert computed(arguments) == computed(uninterrupted[0])
    assert Path(arguments["weights"]).read_bytes() == Path(uninterrupted[0]["weights"]).read_bytes()
    assert Path(arguments["samples"]).read_text() == Path(uninterrupted[0]["samples"]).read_text()
    assert [row[0] for message in messages for row in message.get("rows", ())] == list(range(1, 31))
    for key in ("final_val_loss", "offsets_sha256", "init_sha256", "eval_windows_sha256"):
        assert result[key] == uninterrupted[1][key]


def test_a_finished_run_whose_record_was_lost_only_writes_its_files_again(uninterrupted, monkeypatch):
    arguments, result, _ = uninterrupted
    before = Path(arguments["metrics"]).read_bytes()
    monkeypatch.setattr(TrainStep, "run", lambda step: pytest.fail("a step was run"))
    again, _ = train(arguments)
    assert Path(arguments["metrics"]).read_bytes() == before
    assert again["resumed_at_steps"] == [30]
    assert again["final_val_loss"] == result["final_val_loss"]
    assert again["train_s"] > 0.9 * result["train_s"]  # what the first process spent still counts


@pytest.mark.parametrize(
    ("changes", "resumes"),
    [({"n_steps": 12}, False), ({"seed": 2}, False), ({"timeout_s": 5.0, "checkpoint_every_s": 0.0}, True)],
)
def test_a_checkpoint_is_for_the_same_run_only(tmp_path, changes, resumes):
    train(tiny_run.arguments(tmp_path / "run", n_steps=11))
    result, messages = train(tiny_run.arguments(tmp_path / "run", **{"n_steps": 11, **changes}))
    assert result["resumed_at_steps"] == ([11] if resumes else [])
    assert any("starts anew" in message.get("notice", "") for message in messages) is not resumes


def test_windows_depend_neither_on_batch_size_nor_on_seed(tmp_path):
    results = [
        train(tiny_run.arguments(tmp_path / str(i), n_steps=1, **changes))[0]
        for i, changes in enumerate(
            [
                {},
                {"seed": 9},
                {"step": dataclasses.replace(tiny_run.STEP, batch_size=2)},
                {"step": dataclasses.replace(tiny_run.STEP, accumulation=4)},
            ]
        )
    ]
    assert len({(result["eval_windows_sha256"], result["eval_tokens"]) for result in results}) == 1
    assert len({result["init_sha256"] for result in results}) == 2
    assert results[0]["final_val_loss"] == pytest.approx(results[3]["final_val_loss"], abs=1e-6)


def test_evaluation_and_checkpoints_never_stand_in_a_steps_time(tmp_path, monkeypatch):
    now = 0.0

    def clock():
        return now

    def lasting(seconds, function):
        def run(*args, **kwargs):
            nonlocal now
            now += seconds
            return function(*args, **kwargs)

        return run

    monkeypatch.setattr(step_log, "time", SimpleNamespace(perf_counter=clock))
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(training, "TimeSheet", functools.partial(TimeSheet, clock=clock))
    monkeypatch.setattr(TrainStep, "build", lasting(2.0, TrainStep.build))
    monkeypatch.setattr(TrainStep, "run", lasting(0.125, TrainStep.run))
    monkeypatch.setattr(training, "validation_loss", lasting(0.5, training.validation_loss))
    monkeypatch.setattr(training.Checkpoints, "save", lasting(4.0, training.Checkpoints.save))
    monkeypatch.setattr(training, "generate", lasting(8.0, training.generate))
    arguments = tiny_run.arguments(tmp_path / "run", n_steps=15, eval_every_steps=5)
    result, _ = train(arguments)
    assert [float(row["step_time_s"]) for row in tiny_run.table(arguments)] == [0.125] * 15
    phases = {key: result[f"{key}_s"] for key in ("setup", "train", "eval", "checkpoint", "sample")}
    assert phases == {"setup": 2.0, "train": 15 * 0.125, "eval": 3 * 0.5, "checkpoint": 3 * 4.0, "sample": 8.0}
    assert sum(phases.values()) == now


@pytest.mark.parametrize("broken", ["nan", "inf"])
def test_a_loss_that_is_no_number_ends_the_run_and_leaves_the_last_finite_one(tmp_path, monkeypatch, broken):
    run = TrainStep.run

    def break_at_7(step):
        run(step)
        if step.steps_done == 7:
            step.loss.fill_(float(broken))

    monkeypatch.setattr(TrainStep, "run", break_at_7)
    messages = []
    with pytest.raises(Diverged, match=r"diverged at step 7: loss (nan|inf), last finite loss \d\.\d+ at step 6"):
        training.train(tiny_run.arguments(tmp_path / "run"), messages.append)
    sent = [StepRow(*row) for message in messages for row in message.get("rows", ())]
    assert [row.step for row in sent] == [1, 2, 3, 4, 5, 6]
    partial = [message["partial"] for message in messages if "partial" in message][-1]
    assert (partial["diverged_at_step"], partial["last_finite_loss"]) == (7, sent[-1].loss)
    json.dumps(partial, allow_nan=False)


def test_every_second_is_booked_once():
    now = iter([0.0, 1.0, 3.0, 7.0, 20.0])
    sheet = TimeSheet("setup_s", {"eval_s": 100.0}, clock=lambda: next(now))
    sheet.switch("train_s")
    with sheet.spend("eval_s"):
        pass
    assert sheet.totals() == {"setup_s": 1.0, "train_s": 2.0 + 13.0, "eval_s": 104.0}
