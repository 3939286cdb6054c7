"""A config is refused with one line that names key, value and remedy, or means exactly what it says."""

import copy
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from workflow_scripts.lib.config_checks import check_lengths, check_prices, read_config
from workflow_scripts.lib.config_text import check_config_text, normalise

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "config.schema.yaml"


DEFAULT = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def config():
    return copy.deepcopy(DEFAULT)


def read(config):
    return read_config(config, [], SCHEMA)


def change(config, path, value):
    """Sets a dotted path of a copy; a number is an index of a list."""
    changed = copy.deepcopy(config)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = changed
    for parent in parents:
        place = place[parent]
    place[last] = value
    return changed


def test_the_default_study_is_valid_and_its_exponents_are_numbers(config):
    resolved = read(config)
    assert config["training"]["optimizer"]["learning_rate"] == "2e-3"  # what YAML 1.1 makes of it
    assert resolved["training"]["optimizer"]["learning_rate"] == 0.002
    assert resolved["selection"]["size"] == 900_000


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("training.optimzer", {}, ["training.optimzer", "did you mean optimizer?"]),
        ("corpus.sauce", "kjv", ["corpus.sauce", "did you mean source?"]),
        ("grid.products.0.batchsize", [1], ["grid.products[0].batchsize", "did you mean batch_size?"]),
        ("training.n_steps", 0, ["training.n_steps", "0", "at least 1"]),
        ("training.n_steps", "many", ["training.n_steps", "'many'", "integer"]),
        ("training.precision", "bf61", ["training.precision", "'bf61'", "did you mean bf16?"]),
        ("devices", "all", ["devices", "'all'", "auto"]),
        ("models.0.n_embd", 65, ["narrow", "n_embd", "65", "n_head 4", "choose"]),
        ("models.0.name", "wide", ["models", "wide", "role", "choose another"]),
        ("models.0.name", "middle", ["models", "middle", "twice"]),
        ("models.0.name", "A b", ["models[0].name", "'A b'", "small letters"]),
        ("selection.roles", ["wide"], ["selection.roles", "wide", "deep", "together"]),
        ("selection.roles", ["largest", "balanced"], ["selection.roles", "balanced", "together"]),
        ("selection.roles", ["largest"], ["training.models", "wide", "selection.roles", "add it there"]),
        ("selection.quantity", "step_tim", ["selection.quantity", "did you mean step_time?"]),
        ("recommendation.train_minutes", 0, ["recommendation.train_minutes", "0"]),
        ("grid.products.0.models", ["narow"], ["products[0].models", "narow", "did you mean narrow?"]),
        ("grid.products.0.batch_size", [8, 8], ["batch_size", "8", "twice"]),
        ("grid.products.0.batch_size", [8, "8e0"], ["batch_size", "8", "twice"]),
        ("training.models", ["wide", "brod"], ["training.models", "brod", "did you mean broad?"]),
        ("training.accumulation", 3, ["training.accumulation", "3", "batch_size 8", "divisor"]),
        ("training.optimizer.warmup_steps", 9999, ["warmup_steps", "9999", "500"]),
        ("training.optimizer.min_learning_rate", 1.0, ["min_learning_rate", "1", "0.002"]),
        ("corpus.path", "x.txt", ["corpus.path", "x.txt", "kjv"]),
        ("corpus.tokenizer", "bpe", ["corpus.vocab_size", "None", "bpe"]),
        ("selection.n_embd.min", 1024, ["selection.n_embd.min", "1024"]),
    ],
)
def test_each_fault_is_one_line_with_key_value_and_remedy(config, path, value, words):
    with pytest.raises(ValueError) as refused:
        read(change(config, path, value))
    message = str(refused.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_missing_key_is_named_with_its_meaning(config):
    del config["training"]["n_steps"]
    with pytest.raises(ValueError, match=r"training\.n_steps is missing"):
        read(config)


def test_a_role_needs_a_selection(config):
    with pytest.raises(ValueError, match=r"training\.models: wide is a role, and selection is null"):
        read(change(config, "selection", None))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("training:\n  seeds: [010]\n", ["line 2", "training.seeds[0]", "010", "octal", "write 10"]),
        ("study: no\n", ["line 1", "study", "no", "truth value"]),
        ("a:\n  b: 12:30\n", ["line 2", "a.b", "12:30", "base 60"]),
        ("a: 1\na: 2\n", ["line 2", "a", "twice"]),
    ],
)
def test_yaml_that_does_not_mean_what_it_says_is_refused(tmp_path, text, words):
    file = tmp_path / "study.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as refused:
        check_config_text(file)
    for word in words:
        assert word in str(refused.value)


def test_quoted_words_are_meant(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text('study: "no"\nseeds: ["010"]\nkeep: true\n', encoding="utf-8")
    check_config_text(file)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=1e-30, max_value=1e30))
def test_every_spelling_of_a_number_is_that_number(value):
    assert normalise({"x": [f"{value:.17e}"]}) == {"x": [value]}


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
PLACES = ["study", "devices", "models", "models.0.n_layer", "grid.products", "selection", "training.seeds", "profile"]


@given(ANYTHING, st.sampled_from(PLACES))
def test_any_value_in_any_place_is_accepted_or_refused_in_one_line(value, place):
    try:
        read(change(DEFAULT, place, value))
    except ValueError as refused:
        assert "\n" not in str(refused)
        assert len(str(refused)) < 500


def test_a_context_longer_than_a_split_is_refused_with_both_lengths(config):
    with pytest.raises(ValueError, match=r"256.*validation split has 50 characters.*257"):
        check_lengths(config, {"train": 1000, "validation": 50})
    check_lengths(config, {"train": 257, "validation": 257})


def test_a_price_is_that_of_a_device():
    check_prices({"cpu": 0.1}, ["cpu", "h100"])
    with pytest.raises(
        ValueError, match=r"prices: h10 \(2.5\) is no device of this study: did you mean h100"
    ) as refused:
        check_prices({"h10": 2.5}, ["cpu", "h100"])
    assert "\n" not in str(refused.value)
