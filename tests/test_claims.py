"""The sentences of the report: numbers, verdicts, and silence where the audit or the comparison forbids."""

import re

import pandas as pd
import pytest

from tests import example_tables
from workflow_scripts.lib import claims, comparisons
from workflow_scripts.lib.comparisons import Ratio


def write(**replaced):
    given = {
        "cells": example_tables.cells(), "runs": example_tables.runs(), "devices": example_tables.devices(),
        "processes": example_tables.processes(), "selection": example_tables.selection(), "cost_model": {},
        "findings": [],
    }  # fmt: skip
    return claims.write_claims(**given | replaced)


def about(topic, **replaced):
    return [claim for claim in write(**replaced) if claim.topic == topic]


def ratio(value, low, high):
    return Ratio(value=value, low=low, high=high, records=())


@pytest.mark.parametrize(
    ("compared", "floor", "verdict"),
    [
        (ratio(1.31, 1.28, 1.35), None, "faster"),
        (ratio(0.76, 0.74, 0.78), None, "slower"),
        (ratio(1.05, 0.97, 1.12), None, "undecided"),
        (ratio(1.005, 0.99, 1.015), None, "same"),
        (ratio(1.05, 1.03, 1.07), 0.08, "undecided"),  # below the noise floor
        (ratio(1.31, None, None), None, "undecided"),  # spread unknown
        (ratio(1.0, 0.6, 1.7), None, "undecided"),
    ],
)
def test_verdicts(compared, floor, verdict):
    assert comparisons.verdict(compared, floor) == verdict


def test_the_confidence_named_is_that_of_the_tables():
    from workflow_scripts.lib.estimates import CONFIDENCE

    assert comparisons.THRESHOLDS["interval"] == CONFIDENCE


def test_the_first_claim_gives_ratio_interval_and_both_speeds():
    runs = example_tables.runs()
    claim = about("training")[0]
    speeds = runs.groupby("name").throughput_tokens_per_s.median()
    assert claim.verdict == "faster"
    assert claim.numbers["ratio"] == pytest.approx(speeds["wide"] / speeds["deep"])
    assert f"{claim.numbers['ratio']:.2f}×" in claim.text
    assert claim.key in claim.text
    assert claim.within in claim.text
    assert "`wide`" in claim.text.split(" trains ")[0]
    assert set(claim.records) == set(runs.record)


def test_the_faster_model_is_named_first_whichever_it_is():
    runs = example_tables.runs()
    runs["name"] = runs.name.map({"wide": "deep", "deep": "wide"})
    claim = about("training", runs=runs)[0]
    assert "`deep`" in claim.text.split(" trains ")[0]
    assert claim.numbers["ratio"] > 1


def test_a_matched_pair_names_what_is_not_matched():
    text = about("training")[0].text
    assert "within 0.80\u00a0%" in text
    assert "1.36× the activations per token" in text
    assert "1.03×" not in text  # within the threshold
    assert "layers;" not in text  # they are meant to differ in depth


def test_overlapping_runs_are_not_ranked():
    runs = example_tables.runs()
    runs["throughput_low_tokens_per_s"] = runs.throughput_tokens_per_s * 0.7
    runs["throughput_high_tokens_per_s"] = runs.throughput_tokens_per_s * 1.4
    claim = about("training", runs=runs)[0]
    assert claim.verdict == "undecided"
    assert "undecided" in claim.text
    assert "as many tokens" not in claim.text


def test_runs_that_are_not_alike_are_not_compared():
    runs = example_tables.runs()
    runs.loc[runs.name == "deep", "batch_size"] = 16
    claim = about("training", runs=runs)[0]
    assert "batch size" in claim.withheld


def test_losses_at_unequal_tokens_are_not_compared():
    runs = example_tables.runs()
    runs.loc[runs.name == "deep", "n_tokens"] //= 2
    assert "tokens" in about("loss", runs=runs)[0].withheld


def test_two_seeds_are_no_proof_and_overlapping_seeds_decide_nothing():
    assert "no proof" in about("loss")[0].text
    runs = example_tables.runs()
    runs["final_val_loss"] = [1.60, 1.70, 1.65, 1.68]
    assert "undecided" in about("loss", runs=runs)[0].text
    assert about("loss", runs=example_tables.runs(n_seeds=3))[0].verdict in ("lower", "undecided")


@pytest.mark.parametrize(
    "subject",
    ["wide-baseline-s1", "cpu/wide-baseline-s1", "cpu", "results/example/devices/cpu/runs/wide-baseline-s1/run.json"],
)
def test_an_error_of_the_audit_withholds_what_rests_on_it(subject):
    finding = {"rule": "physical", "severity": "error", "doubts": "all", "subject": subject, "message": "too fast"}
    claim = about("training", findings=[finding])[0]
    assert "too fast" in claim.withheld
    warning = finding | {"severity": "warning"}
    assert about("training", findings=[warning])[0].withheld is None


@pytest.mark.parametrize(("doubts", "withheld"), [("time", {"training"}), ("all", {"training", "loss"})])
def test_an_error_about_times_leaves_losses_alone(doubts, withheld):
    finding = {"rule": "busy", "severity": "error", "doubts": doubts, "subject": "cpu", "message": "not alone"}
    claims = [*about("training", findings=[finding]), *about("loss", findings=[finding])]
    assert {claim.topic for claim in claims if claim.withheld} == withheld


def test_a_barred_cell_enters_no_effect():
    cell = "wide-b8-t64-bf16"
    record = f"results/example/devices/cpu/cells/{cell}.json"
    assert any(record in claim.records for claim in about("grid"))
    finding = {"rule": "physical", "severity": "error", "doubts": "all", "subject": f"cpu/{cell}", "message": "no"}
    assert not any(record in claim.records for claim in about("grid", findings=[finding]))


def test_devices_are_compared_model_by_model():
    told = about(
        "devices", runs=example_tables.runs(2), devices=example_tables.devices(2), cells=example_tables.cells(2)
    )
    assert [claim.verdict for claim in told] == ["faster", "faster"]
    assert all("Example GPU" in claim.text for claim in told)


def test_effects_pair_cells_that_differ_in_one_axis_only():
    pairs = comparisons.effects(example_tables.cells())
    cells = example_tables.cells().set_index("record")
    for pair in pairs.itertuples():
        a, b = cells.loc[pair.record_reference], cells.loc[pair.record]
        differing = {axis for axis in comparisons.AXES if a[axis] != b[axis]}
        assert differing == {pair.axis}
        assert pair.ratio == pytest.approx(b.throughput_tokens_per_s / a.throughput_tokens_per_s)
    assert set(pairs[pairs.axis == "precision"].reference) == {"fp32"}


def test_every_number_of_an_effect_comes_from_the_pairs():
    claim = next(claim for claim in about("grid") if "precision bf16" in claim.text)
    pairs = comparisons.effects(example_tables.cells())
    pairs = pairs[pairs.axis == "precision"]
    assert claim.numbers["ratio"] == pytest.approx(pairs.ratio.median())
    assert re.search(rf"over {len(pairs)}\u00a0pairs", claim.text)


def test_nothing_measured_claims_nothing():
    cells = example_tables.cells(failures=dict.fromkeys(example_tables.cells().cell, "oom"))
    runs = example_tables.runs().assign(status="killed")
    assert write(cells=cells, runs=runs) == []
    assert write(cells=cells.head(0), runs=runs.head(0), processes=pd.DataFrame()) == []


def test_failures_are_counted_with_their_reasons():
    cells = example_tables.cells(failures={"wide-b8-t64-fp32": "oom", "deep-b8-t64-fp32": "timeout"})
    sentence = claims.failures(cells, "cell")
    assert sentence.startswith(f"Of {len(cells)}\u00a0cells, 2 have no measurement")
    assert "1 out of memory" in sentence
    assert "1 over its time limit" in sentence
