"""What defines the work of a study: what a recording must agree with, and what each machine may have of its own."""

import copy
from pathlib import Path

import pytest
import yaml

from workflow_scripts.lib.config_text import normalise
from workflow_scripts.lib.study import Study
from workflow_scripts.lib.work import defined_work

CONFIG = normalise(yaml.safe_load((Path(__file__).parents[1] / "config.yaml").read_text(encoding="utf-8")))


def work(**training):
    """The work of the default study with other training values."""
    config = copy.deepcopy(CONFIG)
    config["training"].update(training)
    return defined_work(Study(name="laptop", config=config, devices={}, vocab_size=80), "5e1f")


@pytest.mark.parametrize(
    "changed", [{"n_steps": 7}, {"precision": "bf16"}, {"optimizer": {**CONFIG["training"]["optimizer"], "beta1": 0.8}}]
)
def test_training_values_are_part_of_the_work(changed):
    assert work(**changed) != work()


@pytest.mark.parametrize(
    "changed", [{"seeds": [7]}, {"timeout_s": 1.0}, {"checkpoint_every_s": 1.0}, {"execution": "eager"}]
)
def test_how_often_and_how_it_is_run_is_not(changed):
    assert work(**changed) == work()


def test_where_nothing_is_trained_only_the_optimizer_of_the_grid_is_left():
    alone = work(models=[])
    assert alone == work(models=[], n_steps=7)
    assert alone["training.optimizer.name"] == "adamw"


def test_a_treatment_that_only_one_study_has_is_no_difference():
    factor = {"name": "rate", "levels": [{"name": "low", "optimizer": {"learning_rate": 1e-4}}]}
    one, other = work(), work(factors=[factor], design="one_at_a_time")
    assert {key: other[key] for key in one} == one
    assert other["training, treatment low"] == {"optimizer.learning_rate": 1e-4}


def test_the_text_counts_and_its_path_does_not():
    assert "corpus.path" not in work()
    assert work()["corpus.text"] == "5e1f"
