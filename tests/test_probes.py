"""Probes for real, at the smallest size on a CPU; and how their entries in a config are read."""

import copy
from pathlib import Path

import pytest
import yaml

from tests import tiny_run
from workflow_scripts.lib import probe_specs
from workflow_scripts.lib.config_checks import read_config
from workflow_scripts.lib.outcome import Unavailable
from workflow_scripts.lib.probe_plan import DEFAULTS, probes_of
from workflow_scripts.lib.probes import accumulation, attention, autocast, clocks, operators
from workflow_scripts.lib.specs import DeviceSpec, to_json
from workflow_scripts.lib.study import Study

ROOT = Path(__file__).parents[1]
DEVICE, MODEL, STEP, ADAMW = (to_json(value) for value in (tiny_run.CPU, tiny_run.SHAPE, tiny_run.STEP, tiny_run.ADAMW))
ATTENTION = {
    "id": "attention", "kind": "attention", "device": DEVICE, "batch_size": 2, "n_head": 1, "head_sizes": [16],
    "sequence_lengths": [64, 32], "precisions": ["fp32"], "backends": ["math"], "compiled": [False], "passes": 6,
    "max_seconds": 0.05, "timeout_s": 60.0,
}  # fmt: skip


def silent(message):
    return None


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return {key: str(path) for key, path in tiny_run.write_corpus(tmp_path_factory.mktemp("corpus")).items()}


def test_attention_is_measured_from_short_to_long_with_its_memory():
    result = attention.probe({"probe": ATTENTION | {"backends": ["math", "flash", "cudnn"]}}, silent)
    rows = {(row["backend"], row["sequence_length"]): row for row in result["rows"]}
    assert [row["sequence_length"] for row in result["rows"][:2]] == [32, 64]
    assert {row["status"] for row in result["rows"] if row["backend"] != "cudnn"} == {"ok"}
    assert rows["cudnn", 32]["status"] == rows["cudnn", 64]["status"] == "unavailable"
    row = rows["math", 64]
    assert min(row["forward_s"]) > 0
    assert min(row["backward_s"]) > 0
    tensor, scores = 2 * 64 * 16 * 4, 2 * 64 * 64 * 4
    # Inputs and the gradient of the output, the output, and at least the scores that the backward pass needs.
    assert 5 * tensor + scores <= row["before_backward_bytes"] < row["peak_bytes"]
    assert rows["flash", 64]["peak_bytes"] < row["peak_bytes"]
    assert result["capacity_bytes"] > 2**20


def test_after_the_first_that_does_not_fit_longer_contexts_are_predicted(monkeypatch):
    measured = attention.measure

    def out_of_memory_from_64(work, spec, device):
        if work.sequence_length >= 64:
            raise MemoryError("no more")
        return measured(work, spec, device)

    monkeypatch.setattr(attention, "measure", out_of_memory_from_64)
    result = attention.probe({"probe": ATTENTION | {"sequence_lengths": [16, 32, 64, 128]}}, silent)
    assert [row["status"] for row in result["rows"]] == ["ok", "ok", "oom", "predicted_oom"]
    *_, last_ok, oom, predicted = result["rows"]
    assert oom["predicted_bytes"] > last_ok["peak_bytes"]
    assert 2 < predicted["predicted_bytes"] / oom["predicted_bytes"] <= 4  # between linear and square growth
    assert "context 64" in predicted["reason"]


def test_what_a_host_might_not_survive_is_not_tried(monkeypatch):
    monkeypatch.setattr(attention, "available_bytes", lambda: 1000)
    (row,) = attention.probe({"probe": ATTENTION | {"sequence_lengths": [64]}}, silent)["rows"]
    assert row["status"] == "predicted_oom"
    assert "forward_s" not in row


def test_memory_is_extrapolated_through_the_last_two():
    done = [{"sequence_length": n, "peak_bytes": 10 * n + 3 * n * n} for n in (10, 20)]
    work = next(attention.series_of(probe_specs.probe_from_json(ATTENTION | {"sequence_lengths": [40]})))[0]
    assert attention.expected_bytes(work, done) == pytest.approx(10 * 40 + 3 * 1600)


def test_sums_are_those_that_anyone_gets():
    probe = {"id": "sums", "kind": "accumulation", "device": DEVICE, "constant": 0.01, "terms": 1000, "timeout_s": 9.0}
    rows = [row for row in accumulation.probe({"probe": probe}, silent)["rows"] if row["terms"] == 1000]
    values = {(row["sum_format"], row["term_format"], row["upcast"]): row for row in rows}
    assert round(values["fp32", "fp32", False]["value"], 4) == 10.0001
    assert round(values["fp16", "fp16", False]["value"], 4) == 9.9531
    assert (
        round(values["fp32", "fp16", False]["value"], 4) == round(values["fp32", "fp16", True]["value"], 4) == 10.0021
    )
    for row in rows:
        assert row["input_error"] + row["sum_error"] == pytest.approx(row["error"], abs=1e-12)
    assert values["fp32", "fp16", True]["input_error"] == pytest.approx(0.0021, abs=5e-5)


def test_data_types_and_drift_are_observed(paths):
    probe = {
        "id": "autocast", "kind": "autocast", "device": DEVICE, "name": "tiny", "model": MODEL, "batch_size": 4,
        "precisions": ["bf16", "tf32"], "optimizer": ADAMW, "n_steps": 3, "timeout_s": 60.0,
    }  # fmt: skip
    fp32, bf16, tf32 = autocast.probe({"probe": probe, **paths}, silent)["rows"]
    assert fp32["loss"] == fp32["loss_fp32"]
    assert fp32["gradient_distance"] == [0.0, 0.0, 0.0]
    kept = {point for point, dtype in bf16["dtypes"].items() if dtype == "float32"}
    assert kept == {"parameters", "normalisation", "residual stream", "loss", "gradients"}
    assert bf16["dtypes"]["first linear"] == bf16["dtypes"]["logits"] == "bfloat16"
    assert all(0 < distance < 0.1 for distance in bf16["gradient_distance"])
    assert all(0.99 < cosine <= 1 + 1e-5 for cosine in bf16["gradient_cosine"])
    assert bf16["loss"] != bf16["loss_fp32"]
    assert tf32["status"] == "unavailable"


def test_clocks_of_a_cpu_have_no_device_of_their_own(paths):
    probe = {
        "id": "clocks", "kind": "clocks", "device": DEVICE, "name": "tiny", "models": [MODEL], "step": STEP,
        "modes": ["forward", "step"], "optimizer": ADAMW, "n_steps": 4, "timeout_s": 60.0,
    }  # fmt: skip
    result = clocks.probe({"probe": probe, **paths}, silent)
    assert result["timeline"] is None
    assert [row["mode"] for row in result["rows"]] == ["forward", "step"]
    for row in result["rows"]:
        assert len(row["host_s"]) == len(row["wall_s"]) == 4
        assert all(host <= wall for host, wall in zip(row["host_s"], row["wall_s"], strict=True))
        assert row["device_s"] is None


def test_operators_of_each_mode_add_up(paths):
    probe = {
        "id": "operators", "kind": "operators", "device": DEVICE, "name": "tiny", "model": MODEL,
        "step": STEP | {"attention": "math"}, "modes": ["forward", "step"], "optimizer": ADAMW, "warmup_steps": 1,
        "n_steps": 2, "timeout_s": 60.0,
    }  # fmt: skip
    result = operators.probe({"probe": probe, **paths}, silent)
    for mode in ("forward", "step"):
        assert sum(row["share"] for row in result["rows"] if row["mode"] == mode) == pytest.approx(1.0)
    seen = {(row["mode"], row["operator"], row["phase"]): row["calls_per_step"] for row in result["rows"]}
    assert seen["forward", "aten::bmm", "forward"] == 2 * tiny_run.SHAPE.n_layer
    assert seen["step", "aten::bmm", "backward"] == 4 * tiny_run.SHAPE.n_layer
    assert not [key for key in seen if key[0] == "forward" and key[2] == "backward"]
    with pytest.raises(Unavailable, match="mps"):
        operators.probe({"probe": probe | {"device": DEVICE | {"type": "mps", "id": "mps"}}, **paths}, silent)


@pytest.fixture
def config():
    values = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    values["probes"] = [
        {"name": "attention", "kind": "attention", "devices": ["cuda"], "head_sizes": [64]},
        {"name": "clocks", "kind": "clocks", "model": "middle", "sequence_lengths": [32, 64]},
    ]
    return values


def test_entries_are_completed_and_go_to_the_devices_that_they_name(config):
    read = read_config(config, [], ROOT / "config.schema.yaml")
    gpu = DeviceSpec(id="cuda0", type="cuda", threads=2, index=0)
    study = Study(name="s", config=read, devices={"cpu": tiny_run.CPU, "cuda0": gpu}, vocab_size=90)
    assert list(probes_of(study, "cpu")) == ["clocks"]
    probes = probes_of(study, "cuda0")
    assert list(probes) == ["attention", "clocks"]
    assert probes["attention"].head_sizes == (64,)
    assert probes["attention"].passes == DEFAULTS["attention"]["passes"] == 100
    assert [model.sequence_length for model in probes["clocks"].models] == [32, 64]
    assert len(probe_specs.parts(to_json(probes["attention"]))) == 10
    for probe in probes.values():
        assert probe_specs.probe_from_json(to_json(probe)) == probe


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"terms": 5}, ["probes[1].terms", "kind clocks", "no such key"]),
        ({"model": "midle"}, ["probes[1].model", "midle", "did you mean middle?"]),
        ({"name": "attention"}, ["probes[1].name", "another probe"]),
        ({"kind": "clock"}, ["probes[1].kind", "did you mean clocks?"]),
        ({"modes": ["sideways"]}, ["probes[1].modes", "sideways"]),
        ({"colour": "red"}, ["probes[1].colour", "not a key"]),
        ({"n_steps": 0}, ["probes[1].n_steps", "at least 1"]),
    ],
)
def test_a_wrong_entry_is_refused_in_one_line(config, change, words):
    wrong = copy.deepcopy(config)
    wrong["probes"][1] |= change
    with pytest.raises(ValueError, match="probes") as refused:
        read_config(wrong, [], ROOT / "config.schema.yaml")
    assert all(word in str(refused.value) for word in words), refused.value
    assert "\n" not in str(refused.value)
