"""Allocations under each treatment: counted for real, unavailable without memray, and asked for by a study."""

import dataclasses
import sys
from pathlib import Path

import pytest
import yaml

from tests.tiny_run import ADAMW, CPU, SHAPE, STEP, write_corpus
from workflow_scripts.lib import probe_specs
from workflow_scripts.lib.config_checks import read_config
from workflow_scripts.lib.probe_plan import probes_of
from workflow_scripts.lib.probes import allocations
from workflow_scripts.lib.specs import MemorySpec, to_json
from workflow_scripts.lib.study import Study

ROOT = Path(__file__).parents[1]
BASELINE = MemorySpec(id="baseline", device=CPU, model=SHAPE, step=STEP, optimizer=ADAMW, timeout_s=60.0, seed=1)
DEEPER = dataclasses.replace(BASELINE, id="deeper", model=dataclasses.replace(SHAPE, n_layer=4))
WIDER = dataclasses.replace(BASELINE, id="wider", model=dataclasses.replace(SHAPE, n_embd=512, n_inner=1024))
NEVER = dataclasses.replace(BASELINE, id="never", step=dataclasses.replace(STEP, precision="tf32"))
PROBE = probe_specs.AllocationsProbe(
    id="allocations",
    device=CPU,
    name="tiny",
    treated=(BASELINE, DEEPER, WIDER, NEVER),
    warmup_steps=1,
    n_steps=2,
    timeout_s=60.0,
)


def count(folder, probe=PROBE):
    paths = {key: str(path) for key, path in write_corpus(folder).items()}
    return allocations.probe({"probe": to_json(probe), **paths}, lambda message: None)


def test_depth_allocates_more_often_and_width_allocates_more_bytes(tmp_path):
    pytest.importorskip("memray")
    found = count(tmp_path)
    rows = {row["treatment"]: row for row in found["rows"]}
    assert [row["status"] for row in found["rows"]] == ["ok", "ok", "ok", "unavailable"]
    baseline, deeper, wider = (rows[name] for name in ("baseline", "deeper", "wider"))
    assert baseline["allocations"][0] == baseline["allocations"][1] > 100
    assert min(deeper["allocations"]) > 1.5 * max(baseline["allocations"])
    assert min(wider["bytes"]) > 1.5 * max(baseline["bytes"])
    assert min(wider["allocations"]) < 1.2 * max(baseline["allocations"])
    assert wider["peak_heap_bytes"] > 1.2 * baseline["peak_heap_bytes"] > 0
    assert baseline["memray"]


def test_without_memray_nothing_was_counted(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "memray", None)
    found = count(tmp_path, dataclasses.replace(PROBE, treated=(BASELINE,)))
    assert found["rows"][0]["status"] == "unavailable"
    assert "pip install memray" in found["rows"][0]["reason"]
    assert "allocations" not in found["rows"][0]


def test_a_study_asks_for_every_treatment_of_a_trained_model():
    def study(model):
        config = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
        config["probes"] = [{"name": "heap", "kind": "allocations", "model": model}]
        config["models"] = [{"name": name, "architecture": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 8}
                            for name in ("small", "idle")]  # fmt: skip
        config["grid"]["products"] = []
        config["training"] |= {"models": ["small"], "factors": [
            {"name": "precision", "levels": [{"name": "bf16", "precision": "bf16"}]},
            {"name": "size", "levels": [{"name": "wide", "model": {"n_embd": 16}}]},
        ], "design": "factorial"}  # fmt: skip
        read = read_config(config, [], ROOT / "config.schema.yaml")
        return Study(name="s", config=read, devices={"cpu": CPU}, vocab_size=90)

    probe = probes_of(study("small"), "cpu")["heap"]
    assert [treated.id for treated in probe.treated] == ["baseline", "wide", "bf16", "bf16+wide"]
    assert [(treated.step.precision, treated.model.n_embd) for treated in probe.treated[1:3]] == [
        ("fp32", 16),
        ("bf16", 8),
    ]
    assert probe_specs.probe_from_json(to_json(probe)) == probe
    assert [len(part["treated"]) for part in probe_specs.parts(to_json(probe))] == [1, 1, 1, 1]
    with pytest.raises(ValueError, match="heap has the model idle, which is not trained"):
        probes_of(study("idle"), "cpu")
