"""What is said of trainings beyond their curves: devices, slow steps, convergence, optimizers."""

import math

import numpy as np
import pandas as pd
import pytest

from tests import example_comparisons, example_tables
from workflow_scripts.lib import convergence, devices_section, optimizer_sweep, spikes, training_section
from workflow_scripts.lib.loss_history import first_at


def test_the_ratio_is_that_of_the_ceilings_times_that_of_the_shares():
    for row in example_comparisons.compare().itertuples():
        assert (row.device_a, row.device_b, row.verdict) == ("gpu", "cpu", "faster")
        assert row.ratio == pytest.approx(row.ceiling_ratio * row.share_a / row.share_b, rel=1e-9)


def test_other_work_or_a_failed_device_is_not_compared_and_says_why():
    runs = example_tables.runs(2)
    runs.loc[runs.device == "gpu", "batch_size"] = 16
    assert set(example_comparisons.compare(runs=runs).not_compared) == {"the runs differ in batch size"}
    runs = example_tables.runs(2)
    runs.loc[runs.device == "gpu", ["status", "throughput_tokens_per_s"]] = ["oom", None]
    row = example_comparisons.compare(runs=runs).iloc[0]
    assert pd.isna(row.ratio)
    assert row.not_compared == "no throughput on gpu (oom)"


def test_each_device_may_execute_in_its_own_way():
    runs = example_tables.runs(2)
    runs.loc[runs.device == "gpu", "execution"] = "graphed"
    row = example_comparisons.compare(runs=runs).iloc[0].to_dict()
    assert "graphed and eager" in devices_section.row_claims(row, {})[0].text


def test_a_price_gives_a_cost_and_none_gives_none():
    row = example_comparisons.compare(prices={"gpu": 3.6}).iloc[0]
    assert row.cost_per_million_tokens_a == pytest.approx(1000 / row.throughput_a_tokens_per_s)
    assert pd.isna(row.cost_per_million_tokens_b)
    assert "the price of cpu is not stated" in row.not_compared


def test_energy_and_cost_are_told_for_a_million_tokens_and_their_lack_once():
    runs = example_tables.runs(2)
    tokens_per_step = runs.batch_size * runs.sequence_length
    runs["energy_per_step_j"] = np.where(runs.device == "gpu", 2e-3 * tokens_per_step, np.nan)
    rows = example_comparisons.compare(prices={"gpu": 3.6}, runs=runs)
    part = devices_section.section(rows, example_tables.devices(2), "example", [])["parts"][0]
    told = [sentence for sentence in part.sentences if sentence.startswith("A million tokens")]
    assert len(told) == 2
    assert all("2,000\u00a0J and " in sentence and "\u00a0EUR on " in sentence for sentence in told)
    assert [sentence for sentence in part.sentences if "is given for `cpu`" in sentence] == part.sentences[-2:]


def test_what_bounds_a_step_is_told_only_where_it_is_known():
    runs = example_tables.runs(2)
    runs.loc[runs.device == "gpu", "execution"] = "graphed"  # in which the grid has no cells
    text = devices_section.row_claims(example_comparisons.compare(runs=runs).iloc[0].to_dict(), {})[0].text
    assert "not enough" not in text


def test_time_to_a_loss_lies_between_the_evaluations_around_it():
    history = pd.DataFrame({"val_loss": [3.0, 2.0, 1.0], "elapsed_s": [10.0, 20.0, 30.0]})
    assert first_at(history, "elapsed_s", 1.5) == pytest.approx(25)
    assert first_at(history, "elapsed_s", 3.5) == 10
    assert math.isnan(first_at(history, "elapsed_s", 0.5))


def test_an_error_of_the_audit_withholds_the_comparison():
    finding = {"rule": "r", "severity": "error", "doubts": "all", "subject": "gpu", "message": "no"}
    found = [finding | {"advice": "", "numbers": {}}]
    shown = devices_section.section(example_comparisons.compare(), example_tables.devices(2), "example", found)
    assert len(shown["withheld"]) == 4
    assert not any("×" in sentence for sentence in shown["parts"][0].sentences)


@pytest.mark.parametrize(
    ("slow", "causes"),
    [
        ({1: 9}, ["first step"]), ({51: 2}, ["evaluation and checkpoint"]), ({120: 3, 121: 3}, ["unexplained"]),
        ({}, []),
        ({60: 1.1}, []),
    ],
)  # fmt: skip
def test_slow_steps_are_found_and_put_down_only_to_what_was_logged(slow, causes):
    found = spikes.spike_rows(example_comparisons.spike_record(), example_comparisons.metrics(slow), "run.json")
    assert [row["cause"] for row in found] == causes


@pytest.mark.parametrize(
    ("look", "cause"),
    [
        ({"throttle_reasons": ["power cap"]}, "throttle"), ({"clock_hz": 1.2e9}, "clock change"),
        ({"load_1min": 4.0}, "other processes"), ({}, "unexplained"),
    ],
)  # fmt: skip
def test_a_disturbance_counts_only_if_it_was_seen_at_that_moment(look, cause):
    usual = {"throttle_reasons": [], "clock_hz": 2e9, "load_1min": 1.0}
    looks = [{"monotonic_s": 100.0 + second, **usual} for second in range(24)]
    machine = {"before": {"monotonic_s": 100.0}, "during": looks}
    history = example_comparisons.metrics({130: 4})  # at about 13 s of steps, after two evaluations of 0.25 s each
    looks[13] |= look
    record = example_comparisons.spike_record(machine=machine)
    assert spikes.spike_rows(record, history, "r")[0]["cause"] == cause
    looks[13], looks[2] = usual | {"monotonic_s": 113.0}, usual | look | {"monotonic_s": 102.0}
    assert spikes.spike_rows(record, history, "r")[0]["cause"] == "unexplained"


def test_company_over_the_whole_run_is_told_and_explains_no_single_step():
    record = example_comparisons.spike_record(machine={"between": {"others_cores": 1.3}})
    row = spikes.spike_rows(record, example_comparisons.metrics({130: 4}), "r")[0]
    assert row["cause"] == "unexplained"
    assert row["evidence"].endswith("other processes kept 1.3 cores busy")


def test_a_slow_spell_is_one_event():
    found = spikes.find_spikes(np.concatenate([np.full(300, 0.1), np.full(120, 0.15), np.full(300, 0.1)]))
    assert found[["first", "n_steps"]].to_numpy().tolist() == [[300, 120]]


def _curve(place: float, seed: int, name: str) -> pd.DataFrame:
    tokens = np.arange(1, 21) * 1000.0
    return pd.DataFrame({
        "device": "cpu", "run": f"{name}-s{seed}", "name": name, "treatment": "baseline", "seed": seed,
        "step": tokens / 1000, "tokens": tokens, "elapsed_s": tokens / 500, "grad_norm": 1.0,
        "val_loss": np.where(tokens < place, 2.0, 1.0),
    })  # fmt: skip


def test_an_order_of_convergence_needs_seeds_that_are_apart():
    def judged(seeds, gap):
        curves = [_curve(5000 + gap * (name == "deep"), s, name) for name in ("wide", "deep") for s in range(seeds)]
        return pd.DataFrame(convergence.judge_convergence(pd.concat(curves)))

    ends = ("settled_low_tokens", "settled_high_tokens")
    rows = judged(3, 6000)
    assert rows.steady.all()
    assert (rows.settled_low_tokens < rows.settled_tokens).all()
    assert convergence.order(rows, "wide", "deep", ends) == "earlier"
    assert convergence.order(rows, "deep", "wide", ends) == "later"
    assert convergence.order(judged(2, 6000), "wide", "deep", ends) == "undecided"
    assert convergence.order(judged(3, 0), "wide", "deep", ends) == "undecided"


def test_a_loss_that_rises_again_has_not_converged():
    curves = [_curve(5000, seed, "wide") for seed in range(3)]
    for curve in curves:
        curve.loc[curve.tokens > 8000, "val_loss"] = np.linspace(1.0, 1.2, 12)
    rows = pd.DataFrame(convergence.judge_convergence(pd.concat(curves)))
    assert rows.settled_tokens.isna().all()
    assert set(rows.lowest_tokens) == {5000.0}
    (told,) = training_section.convergence_sentences(rows)
    assert "lowest, 1.000, after 5.00k" in told
    assert "(3 of 3" in told


def test_the_best_rate_of_an_optimizer_warns_at_the_edge_of_the_grid():
    rows = pd.DataFrame(optimizer_sweep.sweep_optimizers(*example_comparisons.sweep()))
    best = rows[rows.best].set_index("optimizer")
    assert best.at_edge.to_dict() == {"adamw": "inside", "sgd with momentum": "highest"}
    assert best.learning_rate.to_dict() == {"adamw": 2e-3, "sgd with momentum": 0.2}
    assert set(rows.seconds) == {12.0}
    rows = pd.DataFrame(optimizer_sweep.sweep_optimizers(*example_comparisons.sweep(diverged="sgd_2")))
    assert rows[rows.best & (rows.optimizer != "adamw")].learning_rate.tolist() == [0.1]
    assert rows[rows.treatment == "sgd_2"][["n_diverged", "n_seeds"]].to_numpy().tolist() == [[2, 0]]


def test_an_optimizer_without_an_evaluation_by_the_equal_second_is_named():
    rows = pd.DataFrame(optimizer_sweep.sweep_optimizers(*example_comparisons.sweep()))
    assert not any("no evaluation" in text for text in training_section.optimizer_sentences(rows))
    late = pd.concat([rows, rows[rows.best & (rows.optimizer == "adamw")].assign(optimizer="muon")])
    late.loc[late.optimizer == "muon", "val_loss_at_seconds"] = np.nan
    assert any("; muon had no evaluation by then." in text for text in training_section.optimizer_sentences(late))


def test_a_sweep_compares_runs_of_the_baselines_work_only():
    runs, curves = example_comparisons.sweep()
    swept = pd.DataFrame(optimizer_sweep.sweep_optimizers(runs, curves))
    other = runs[runs.optimizer == "sgd"].assign(batch_size=2, treatment="half", run=lambda r: r.run + "-half")
    both = pd.concat([runs, other], ignore_index=True)
    pd.testing.assert_frame_equal(pd.DataFrame(optimizer_sweep.sweep_optimizers(both, curves)), swept)
    one_rate = runs[runs.treatment.isin(["baseline", "sgd_1"])]
    assert optimizer_sweep.sweep_optimizers(one_rate, curves) == []
