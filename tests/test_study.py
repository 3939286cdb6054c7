"""A study resolves into the cells and runs that its config asks for, under readable ids, in a recorded order."""

from pathlib import Path

import pytest
import yaml
from snakemake.utils import update_config

from workflow_scripts.lib.config_checks import read_config
from workflow_scripts.lib.config_text import normalise
from workflow_scripts.lib.specs import DeviceSpec, RunSpec, from_json, to_json
from workflow_scripts.lib.study import Study


@pytest.fixture
def study():
    config = normalise(yaml.safe_load((Path(__file__).parents[1] / "config.yaml").read_text(encoding="utf-8")))
    device = DeviceSpec(id="cpu", type="cpu", threads=2)
    return Study(name="laptop", config=config, devices={"cpu": device}, vocab_size=80)


def test_products_multiply_out_and_a_cell_of_two_products_is_measured_once(study):
    cells = study.cells("cpu")
    assert "middle-b4-t64-fp32-eager" in cells
    assert "middle-b4-t64-fp32-eager-p3" in cells
    assert "middle-b4-t256-fp32-eager-optimizer" in cells
    assert len(cells) == 3 * 3 * 2 + 3 + 1 + 3 + 2
    assert cells["middle-b4-t64-fp32-eager"].fresh
    assert not cells["middle-b4-t256-fp32-eager"].fresh
    assert all(cell.id == key for key, cell in cells.items())


def test_the_default_grid_is_as_large_as_it_says(study):
    cells = study.cells("cpu").values()
    assert len(cells) >= 24
    assert len({cell.model.n_embd for cell in cells}) >= 3
    assert len({cell.step.batch_size for cell in cells}) >= 3
    assert len({cell.model.sequence_length for cell in cells}) >= 2


def test_order_is_shuffled_by_its_seed_alone(study):
    order = list(study.cells("cpu"))
    assert order == list(study.cells("cpu"))
    assert order != sorted(order)
    study.config["grid"]["order_seed"] = 2
    assert order != list(study.cells("cpu"))


def test_runs_are_models_by_seeds_and_survive_json(study):
    assert list(study.runs) == ["wide-s1", "wide-s2", "deep-s1", "deep-s2"]
    run = study.run("cpu", "deep-s2", study.shape("middle", 128))
    assert (run.name, run.seed, run.optimizer.decay_steps) == ("deep", 2, run.n_steps)
    assert from_json(RunSpec, to_json(run)) == run


def test_an_unknown_key_of_a_spec_stops_the_job(study):
    values = to_json(study.run("cpu", "deep-s2", study.shape("middle", 128)))
    values["step"]["acumulation"] = 4
    with pytest.raises(Exception, match="acumulation"):
        from_json(RunSpec, values)


ROOT = Path(__file__).parents[1]
STUDIES = sorted(path.stem for path in (ROOT / "studies").glob("*.yaml"))


def whole(name: str) -> dict:
    """The config of a study as the engine merges it: the default one, and what is laid over it."""
    base = name.removesuffix("_small")
    merged = {}
    for file in dict.fromkeys(["config.yaml", f"studies/{base}.yaml", f"studies/{name}.yaml"]):
        update_config(merged, yaml.safe_load((ROOT / file).read_text(encoding="utf-8")))
    return merged


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_resolves(name):
    files = [ROOT / "config.yaml", ROOT / f"studies/{name}.yaml"]
    config = read_config(whole(name), files, ROOT / "config.schema.yaml")
    gpu = DeviceSpec(id="gpu", type="cuda", threads=1, index=0)
    study = Study(name=name, config=config, devices={"gpu": gpu}, vocab_size=10_000, capturing=frozenset({"gpu"}))
    assert config["study"] == name
    assert 0 < len(study.cells("gpu")) <= 60
    seeds = config["training"]["seeds"]
    of_treatments = (len(study.treatments) - 1) * len(config["training"]["treatment_seeds"] or seeds)
    assert len(study.runs) == len(study.trained) * (len(seeds) + of_treatments)


def test_every_write_up_is_a_study_with_a_small_one():
    named = {"wide_vs_deep", "model_sizes", "cpu_optimizations", "attention_and_precision", "interactions"}
    assert set(STUDIES) == named | {f"{name}_small" for name in named}
