"""The pair is matched on what was asked, differs in depth as asked, and keeps to budgets or says which it misses."""

import copy
from pathlib import Path

import pytest
import yaml

from workflow_scripts.lib.candidates import CANDIDATE_COLUMNS, Cost, candidate_rows, quantity
from workflow_scripts.lib.config_text import normalise
from workflow_scripts.lib.counts import count_parameters, flops_per_token
from workflow_scripts.lib.selection import USUAL_PROPORTIONS, choose
from workflow_scripts.lib.specs import ModelShape, from_json
from workflow_scripts.lib.study import complete_shape


@pytest.fixture
def wanted():
    return normalise(yaml.safe_load((Path(__file__).parents[1] / "config.yaml").read_text(encoding="utf-8")))[
        "selection"
    ]


def cheap(shape):
    return {"cpu": Cost(step_time_s=0.1, train_s=50.0, peak_bytes=10**8)}


def by_depth(shape):
    """A device on which a step takes longer for each layer and each parameter."""
    step_time_s = 1e-3 * shape.n_layer + 1e-8 * count_parameters(shape).non_embedding
    return {"cpu": Cost(step_time_s=step_time_s, train_s=600 * step_time_s, peak_bytes=10**8)}


def select(wanted, predict=cheap):
    return choose(wanted, vocab_size=80, sequence_length=128, predict=predict).selection


def shapes_of(chosen):
    return {name: from_json(ModelShape, role["shape"]) for name, role in chosen["roles"].items()}


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
    shapes = shapes_of(chosen)
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


def test_models_may_be_matched_on_predicted_step_time(wanted):
    wanted |= {"quantity": "step_time", "size": 0.02, "size_tolerance": 0.3, "tolerance": 0.05}
    chosen = select(wanted, by_depth)
    shapes = shapes_of(chosen)
    wide_s, deep_s = (by_depth(shapes[role])["cpu"].step_time_s for role in ("wide", "deep"))
    assert abs(deep_s / wide_s - 1) <= 0.05
    assert chosen["ratios"]["step_time"] == pytest.approx(deep_s / wide_s)
    assert chosen["quantity_device"] == "cpu"
    assert abs(chosen["ratios"]["non_embedding"] - 1) > 0.05


def test_a_step_time_that_nobody_can_predict_is_no_quantity_to_match_on(wanted):
    with pytest.raises(ValueError, match=r"step_time.*no device has a cost model.*grid\.products"):
        select(
            wanted | {"quantity": "step_time"}, lambda s: {"cpu": Cost(step_time_s=None, train_s=None, peak_bytes=1)}
        )


def test_the_balanced_one_agrees_with_both_and_lies_between(wanted):
    wanted |= {"roles": ["wide", "deep", "balanced"], "tolerance": 0.05}
    wanted["n_embd"]["multiple_of"] = 8
    shapes = shapes_of(select(wanted))
    assert list(shapes) == ["wide", "deep", "balanced"]
    assert shapes["wide"].n_layer < shapes["balanced"].n_layer < shapes["deep"].n_layer
    for end in ("wide", "deep"):
        assert abs(quantity("non_embedding", shapes["balanced"]) / quantity("non_embedding", shapes[end]) - 1) <= 0.05


def test_no_balanced_one_says_what_to_widen(wanted):
    wanted |= {"roles": ["wide", "deep", "balanced"], "tolerance": 1e-4, "depth_ratio": 1.5, "size_tolerance": 0.5}
    with pytest.raises(ValueError, match="widen"):
        select(wanted)


def test_the_largest_is_what_the_budgets_hold(wanted):
    wanted |= {"roles": ["largest"], "budgets": {"memory_gib": 4, "train_minutes": 0.5}}
    chosen = choose(wanted, vocab_size=80, sequence_length=128, predict=by_depth)
    largest = chosen.roles["largest"].shape
    assert by_depth(largest)["cpu"].train_s <= 30
    assert USUAL_PROPORTIONS[0] <= largest.n_embd / largest.n_layer <= USUAL_PROPORTIONS[1]
    for other in chosen.field:
        if USUAL_PROPORTIONS[0] <= other.shape.n_embd / other.shape.n_layer <= USUAL_PROPORTIONS[1]:
            larger = quantity("non_embedding", other.shape) > quantity("non_embedding", largest)
            assert not larger or by_depth(other.shape)["cpu"].train_s > 30
    assert chosen.selection["ratios"] == {}


def test_a_budget_that_holds_nothing_is_named(wanted):
    wanted |= {"roles": ["largest"], "budgets": {"memory_gib": 0.01, "train_minutes": 5}}
    with pytest.raises(ValueError, match=r"memory_gib is 0\.01"):
        select(wanted)


def test_the_field_says_of_each_candidate_what_it_costs_and_which_budget_it_overruns(wanted):
    wanted["budgets"] = {"memory_gib": 4, "train_minutes": 0.3}
    chosen = choose(wanted, vocab_size=80, sequence_length=128, predict=by_depth)
    rows = candidate_rows(chosen.field, wanted, chosen.roles)
    assert set(rows[0]) == set(CANDIDATE_COLUMNS)
    assert len(rows) == chosen.selection["n_field"] == 16 * 32
    assert {row["role"] for row in rows if row["role"]} == {"wide", "deep"}
    assert all(row["over_time"] == (row["train_s"] > 18) for row in rows)
    assert not any(row["over_memory"] for row in rows)


def test_thousands_of_candidates_are_matched_by_arrays(wanted):
    wanted |= {"n_embd": {"min": 32, "max": 1024, "multiple_of": 8}, "n_layer": {"min": 1, "max": 48}}
    wanted |= {"size_tolerance": 1.0, "roles": ["wide", "deep", "balanced", "largest"]}
    chosen = select(wanted)
    assert chosen["n_field"] == 125 * 48
    assert chosen["n_matched_pairs"] > 500
