from pathlib import Path

import pytest
import yaml

from workflow_scripts.lib.config_text import normalise
from workflow_scripts.lib.specs import DeviceSpec, ModelShape
from workflow_scripts.lib.study import Study
from workflow_scripts.lib.treatments import plan_treatments

SIZE = {
    "name": "size",
    "levels": [{"name": "layers_x2", "model": {"n_layer": 8}}, {"name": "wide_x2", "model": {"n_embd": 256}}],
}
WAY = {
    "name": "way",
    "levels": [{"name": "sgd", "optimizer": {"name": "sgd", "learning_rate": 0.1}}, {"name": "half", "batch_size": 4}],
}
RATES = {"name": "rate", "key": "optimizer.learning_rate", "values": [0.001, 0.004]}
CPU, GPU = DeviceSpec(id="cpu", type="cpu", threads=1), DeviceSpec(id="gpu", type="cuda", threads=1, index=0)


@pytest.fixture
def config():
    return normalise(yaml.safe_load(Path("config.yaml").read_text(encoding="utf-8")))


def names(config, design, *factors):
    return list(plan_treatments({**config["training"], "factors": list(factors), "design": design}))


def test_a_study_without_factors_trains_the_baseline(config):
    assert names(config, "factorial") == ["baseline"]


@pytest.mark.parametrize(
    ("design", "factors", "planned"),
    [
        ("one_at_a_time", [SIZE, WAY], ["baseline", "layers_x2", "wide_x2", "sgd", "half"]),
        ("factorial", [SIZE, WAY], ["baseline", "sgd", "half", "layers_x2", "layers_x2+sgd", "layers_x2+half",
                                    "wide_x2", "wide_x2+sgd", "wide_x2+half"]),
        ("pairs", [WAY, RATES], ["baseline", "sgd", "half", "learning_rate_0.001", "learning_rate_0.004", "sgd+half",
                                 "half+learning_rate_0.001", "half+learning_rate_0.004"]),
        (["half", "wide_x2+sgd"], [SIZE, WAY], ["baseline", "half", "wide_x2+sgd"]),
    ],
)  # fmt: skip
def test_designs_combine_levels(config, design, factors, planned):
    assert names(config, design, *factors) == planned


def test_a_treatment_is_an_exact_difference(config):
    baseline = {**config["training"], "factors": [SIZE, WAY], "design": "factorial"}
    both = plan_treatments(baseline)["layers_x2+sgd"]
    assert both.levels == {"size": "layers_x2", "way": "sgd"}
    changed = both.training(baseline)
    assert {key for key in changed if changed[key] != baseline[key]} == {"optimizer"}
    different = {key for key, value in changed["optimizer"].items() if value != baseline["optimizer"][key]}
    assert different == {"name", "learning_rate"}
    assert both.model == {"n_layer": 8}


@pytest.mark.parametrize(
    ("design", "factors", "words"),
    [
        (["sgd+halv"], [WAY], ["training.design", "halv", "half"]),
        ("factorial", [WAY, RATES], ["sgd+learning_rate_0.001", "optimizer.learning_rate"]),
        ("one_at_a_time", [WAY, {**WAY, "name": "again"}], ["sgd", "twice"]),
        (
            "one_at_a_time",
            [{"name": "x", "levels": [{"name": "idle", "batch_size": 8}]}],
            ["idle", "baseline", "nothing"],
        ),
    ],
)
def test_faults_of_a_design_are_one_line(config, design, factors, words):
    with pytest.raises(ValueError) as refused:
        names(config, design, *factors)
    assert "\n" not in str(refused.value)
    for word in words:
        assert word in str(refused.value)


def test_treatments_may_have_fewer_seeds_than_the_baseline(config):
    config["training"] |= {"factors": [WAY], "design": "one_at_a_time", "models": ["middle"]}
    config["training"] |= {"seeds": [1, 2, 3], "treatment_seeds": [2]}
    study = Study(name="s", config=config, devices={"cpu": CPU}, vocab_size=80, capturing=frozenset())
    runs = study.runs.values()
    assert [run.seed for run in runs if run.treatment.name == "baseline"] == [1, 2, 3]
    assert {run.seed for run in runs if run.treatment.name != "baseline"} == {2}


def test_runs_are_models_by_treatments_by_seeds(config):
    config["training"] |= {"factors": [SIZE, WAY], "design": "one_at_a_time", "models": ["middle"], "seeds": [1, 2]}
    study = Study(
        name="s", config=config, devices={"cpu": CPU, "gpu": GPU}, vocab_size=80, capturing=frozenset({"gpu"})
    )
    assert list(study.runs)[:4] == ["middle-s1", "middle-s2", "middle-layers_x2-s1", "middle-layers_x2-s2"]
    shape = ModelShape(
        architecture="gpt2", n_layer=4, n_head=4, n_embd=128, n_inner=512, vocab_size=80, sequence_length=8
    )
    wide = study.run("gpu", "middle-wide_x2-s1", shape)
    assert (wide.model.n_embd, wide.model.n_inner, wide.model.sequence_length) == (256, 1024, 128)
    assert (wide.treatment, wide.levels, wide.step.execution) == (
        "wide_x2",
        {"size": "wide_x2", "way": "baseline"},
        "graphed",
    )
    assert study.run("cpu", "middle-half-s2", shape).step.batch_size == 4
    assert study.training_step("cpu").execution == "eager"
    config["training"]["optimizer"]["name"] = "muon"  # which no graph captures
    assert study.training_step("gpu").execution == "eager"


def test_a_product_may_concern_one_type_of_device(config):
    study = Study(name="s", config=config, devices={"cpu": CPU, "gpu": GPU}, vocab_size=80)
    assert "middle-b16-t256-bf16-graphed" in study.cells("gpu")
    assert "middle-b16-t256-bf16-graphed" not in study.cells("cpu")
