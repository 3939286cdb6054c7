"""A question from the shell: answered fast, without torch and without a study, or refused in one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import example_recording, example_tables
from tests.tiny_run import CPU
from workflow_scripts import estimate
from workflow_scripts.lib import known_devices
from workflow_scripts.lib.cuda_allocator import MIB
from workflow_scripts.lib.forecast import Forecast
from workflow_scripts.lib.gpu import UNKNOWN, Gpu
from workflow_scripts.lib.known_shapes import KNOWN_SHAPES
from workflow_scripts.lib.memory_model import estimate_memory
from workflow_scripts.lib.specs import to_json
from workflow_scripts.lib.study import complete_shape

ROOT = Path(__file__).parents[1]
PARAMETERS = {  # as published, or as the released weights have
    "gpt2-124m": 124_439_808, "gpt2-355m": 354_823_168, "gpt2-774m": 774_030_080, "gpt2-1558m": 1_557_611_200,
    "llama-7b": 6_738_415_616, "llama-13b": 13_015_864_320,
}  # fmt: skip


def ask(capsys, *options):
    assert estimate.main([*options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refuse(capsys, *options):
    with pytest.raises(SystemExit) as ended:
        estimate.main(options)
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize("model", PARAMETERS)
def test_known_models_have_their_published_number_of_parameters(capsys, model):
    told = ask(capsys, "--model", model)
    assert told["parameters"]["total"] == PARAMETERS[model]


def test_a_known_shape_is_complete():
    for values in KNOWN_SHAPES.values():
        complete_shape(values, values["vocab_size"], values["sequence_length"])


def test_a_shape_is_what_its_options_say_and_wins_over_the_known_one(capsys):
    spelled = ask(capsys, "--n-layer", "12", "--n-head", "12", "--n-embd", "768")
    known = ask(capsys, "--model", "gpt2-124m")
    assert spelled == known
    deeper = ask(capsys, "--model", "gpt2-124m", "--n-layer", "24", "--batch-size", "2")
    assert deeper["shape"]["n_layer"] == 24
    assert deeper["tokens_per_step"] == 2 * 1024


def test_the_kinds_of_memory_add_up_to_its_peak(capsys):
    told = ask(capsys, "--model", "llama-7b", "--precision", "bf16", "--optimizer", "sgd", "--checkpointing")
    for memory in told["memory"].values():
        assert sum(memory["at_peak_bytes"].values()) == memory["peak_bytes"] == max(memory["phases_bytes"].values())
    plain = ask(capsys, "--model", "llama-7b", "--precision", "bf16", "--optimizer", "sgd")
    assert plain["memory"]["cuda"]["peak_bytes"] > told["memory"]["cuda"]["peak_bytes"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--n-layer", "2"], ["--n-head", "--n-embd", "known --model"]),
        (["--model", "gpt5"], ["gpt5", "gpt2-124m"]),
        (["--model", "gpt2-124m", "--n-embd", "770"], ["--n-embd is 770", "--n-head 12", "choose"]),
        (["--model", "llama-7b", "--n-embd", "1120"], ["35", "odd", "choose"]),
        (["--model", "gpt2-124m", "--accumulation", "3"], ["--accumulation is 3", "--batch-size 8", "divisor"]),
        (["--model", "gpt2-124m", "--batch-size", "0"], ["--batch-size", "'0'", "at least 1"]),
        (["--model", "gpt2-124m", "--precision", "fp8"], ["fp8", "bf16"]),
        (["--model", "gpt2-124m", "--study", "no-such"], ["no-such", "neither", "another --study"]),
        (["--model", "gpt2-124m", "--n-layer", "99999999"], ["--n-layer", "99999999", "10,000"]),
        (["--model", "gpt2-124m", "--execution", "graphed", "--optimizer", "muon"], ["graphed", "muon", "adamw"]),
    ],
)
def test_a_question_with_a_fault_is_refused_in_one_line(capsys, options, words):
    said = refuse(capsys, *options)
    for word in words:
        assert word in said


def test_people_read_the_same_numbers(capsys):
    assert estimate.main(["--model", "gpt2-124m", "--precision", "bf16"]) == 0
    said = capsys.readouterr().out
    for words in ("124,439,808", "854\N{NO-BREAK SPACE}MFLOPs", "peak allocated memory", "logits", "bf16"):
        assert words in said


class Fitted:
    """A study in which one device has a cost model and the other has none."""

    def memory(self, device, shape, step, optimizer):
        gpu = Gpu(name="NVIDIA H200", compute_capability="9.0") if device == "gpu" else UNKNOWN
        return estimate_memory(shape, step, optimizer, "cuda" if device == "gpu" else "cpu", gpu=gpu)

    def forecast(self, device, shape, step, optimizer):
        if device == "gpu":
            return Forecast(step_time_s=None, peak_bytes=10**9)
        times = {"step_time_s": 0.02, "low_s": 0.018, "high_s": 0.023, "bound": "bandwidth"}
        return Forecast(**times, peak_bytes=10 * 2**30)


def test_a_study_says_what_its_devices_would_take_or_that_it_does_not_know(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(estimate, "ROOT", tmp_path)
    monkeypatch.setattr(known_devices, "read_forecaster", lambda cost_model, devices: Fitted())
    example_tables.write_study(tmp_path / "results" / "mine", n_devices=2)
    cpu, gpu = ask(capsys, "--model", "gpt2-124m", "--study", "mine")["devices"]
    assert cpu["throughput_tokens_per_s"] == pytest.approx(8 * 1024 / 0.02)
    assert (cpu["bound"], cpu["fits"], cpu["not_predicted"]) == ("bandwidth", False, None)
    assert (gpu["step_time_s"], gpu["fits"]) == (None, True)
    assert "fp32 eager" in gpu["not_predicted"]
    memory, any_memory = gpu["memory"], ask(capsys, "--model", "gpt2-124m")["memory"]["cuda"]
    assert memory["peak_bytes"] - any_memory["peak_bytes"] > 40 * MIB  # workspaces of a Hopper
    assert estimate.main(["--model", "gpt2-124m", "--study", "mine"]) == 0
    said = capsys.readouterr().out.replace("\N{NO-BREAK SPACE}", " ")
    assert "20.0 ms a step (18.0–23.0 ms), 410k tokens/s, bound by bandwidth" in said
    assert "does not fit" in said
    assert "not predicted: " in said


def test_a_study_that_was_only_recorded_is_known_by_its_recordings(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(estimate, "ROOT", tmp_path)
    members = example_recording.write_results(tmp_path / "elsewhere")
    name = "devices/box/calibration.json"
    calibration = json.loads(members[name]) | {"spec": {"device": to_json(CPU)}, "ceilings": []}
    example_recording.pack(tmp_path, members=members | {name: json.dumps(calibration).encode()})
    (box,) = ask(capsys, "--model", "gpt2-124m", "--study", "example")["devices"]
    assert (box["device"], box["origin"], box["name"]) == ("box", "recorded", "Example Box")
    assert box["not_predicted"]
    (tmp_path / "recordings" / "example" / "box.zip").write_bytes(b"no archive")
    refuse(capsys, "--model", "gpt2-124m", "--study", "example")


def test_a_cost_model_of_another_version_is_said_to_be_one(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(estimate, "ROOT", tmp_path)
    paths = example_tables.write_study(tmp_path / "results" / "old")
    paths["cost_model"].write_text('{"devices": {"cpu": {"fp32-eager": {"coefficients": [1.0]}}}}')
    assert "run study old again" in refuse(capsys, "--model", "gpt2-124m", "--study", "old")


def run(*options):
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "workflow_scripts.estimate", *options],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_from_the_shell_it_imports_nothing_heavy():
    ended = run("--model", "gpt2-124m", "--json")
    assert ended.returncode == 0
    json.loads(ended.stdout)
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in ended.stderr.splitlines()}
    assert not imported & {"torch", "matplotlib", "snakemake"}


def test_without_a_study_the_default_one_answers_or_it_is_said_that_nothing_is_known(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(estimate, "ROOT", tmp_path)
    told = ask(capsys, "--model", "gpt2-124m")
    assert (told["devices"], "run it first" in told["step_time_unknown"]) == ([], True)
    assert estimate.main(["--model", "gpt2-124m", "--execution", "graphed"]) == 0
    said = capsys.readouterr().out
    assert "step time               nothing is known of a device" in said
    assert "on any cuda" in said
    assert "on any cpu" not in said  # no graph is captured there
    monkeypatch.setattr(known_devices, "read_forecaster", lambda cost_model, devices: Fitted())
    example_tables.write_study(tmp_path / "results" / "laptop", n_devices=2)
    assert [one["bound"] for one in ask(capsys, "--model", "gpt2-124m")["devices"]] == ["bandwidth", None]


def test_help_names_every_option():
    ended = run("--help")
    assert ended.returncode == 0
    for option in ("--n-layer", "--precision", "--study", "--json", "default: fp32", "python -m"):
        assert option in " ".join(ended.stdout.split())
