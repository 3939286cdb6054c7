"""The pair is matched on what was asked, differs in depth as asked, and keeps to budgets or says which it misses."""

import copy
from pathlib import Path

import pytest
import yaml

from workflow_scripts.lib.config_text import normalise
from workflow_scripts.lib.counts import count_parameters, flops_per_token
from workflow_scripts.lib.selection import Cost, choose, quantity
from workflow_scripts.lib.specs import ModelShape, from_json
from workflow_scripts.lib.study import complete_shape


@pytest.fixture
def wanted():
    return normalise(yaml.safe_load((Path(__file__).parents[1] / "config.yaml").read_text(encoding="utf-8")))[
        "selection"
    ]


def cheap(shape):
    return {"cpu": Cost(step_time_s=0.1, train_s=50.0, peak_bytes=10**8)}


def select(wanted, predict=cheap):
    return choose(wanted, vocab_size=80, sequence_length=128, predict=predict)


def test_quantities_are_those_of_counts():
    shape = complete_shape({"architecture": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64}, 80, 128)
    assert quantity("total", shape) == count_parameters(shape).total
    assert quantity("flops_per_token", shape) == flops_per_token(shape, 128).training


@pytest.mark.parametrize("matched", ["non_embedding", "total", "flops_per_token"])
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_the_pair_agrees_in_the_named_quantity(wanted, matched, architecture):
    size = 6e6 if matched == "flops_per_token" else 1e6
    wanted |= {"quantity": matched, "size": size, "size_tolerance": 0.3, "architecture": architecture}
    wanted |= {"tolerance": 0.02, "n_embd": {"min": 32, "max": 512, "multiple_of": 8}}
    chosen = select(wanted)
    shapes = {name: from_json(ModelShape, role["shape"]) for name, role in chosen["roles"].items()}
    wide, deep = shapes["wide"], shapes["deep"]
    assert abs(quantity(matched, deep) / quantity(matched, wide) - 1) <= 0.02
    assert wide.n_head == deep.n_head == wanted["n_head"]
    assert deep.n_layer >= wanted["depth_ratio"] * wide.n_layer
    assert chosen["ratios"][matched] == pytest.approx(quantity(matched, deep) / quantity(matched, wide))
    assert {"total", "non_embedding", "flops_per_token", "activation_elements_per_token"} <= set(chosen["ratios"])


def test_it_is_the_same_choice_every_time_and_has_runners_up(wanted):
    wanted["n_embd"]["multiple_of"] = 8
    assert select(wanted) == select(copy.deepcopy(wanted))
    assert select(wanted)["runners_up"]


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (
            Cost(step_time_s=1.0, train_s=600.0, peak_bytes=1),
            ["train_minutes is 5", "10.0 minutes on cpu", "100% over"],
        ),
        (Cost(step_time_s=1.0, train_s=1.0, peak_bytes=6 * 2**30), ["memory_gib is 4", "6.00 GiB on cpu", "50% over"]),
    ],
)
def test_a_budget_that_cannot_be_met_is_named_with_how_much_is_missing(wanted, cost, words):
    with pytest.raises(ValueError) as refused:
        select(wanted, lambda shape: {"cpu": cost})
    for word in words:
        assert word in str(refused.value)


def test_a_device_that_is_too_slow_bars_a_pair(wanted):
    def predict(shape):
        return cheap(shape) | {"old": Cost(step_time_s=1.0, train_s=1e6 * (shape.n_layer > 4), peak_bytes=1)}

    with pytest.raises(ValueError, match="on old"):
        select(wanted, predict)


def test_a_time_that_cannot_be_predicted_is_not_taken_for_zero(wanted):
    chosen = select(wanted, lambda shape: {"cpu": Cost(step_time_s=None, train_s=None, peak_bytes=1)})
    assert chosen["roles"]["wide"]["predicted"]["cpu"]["train_s"] is None


def test_no_pair_says_what_to_widen(wanted):
    with pytest.raises(ValueError, match="widen"):
        select(wanted | {"depth_ratio": 1000})
