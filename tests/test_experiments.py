"""Experiments: what was put in is found, ranks agree with the published order, and the page says what tables hold."""

import csv
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.statistics import simulate
from tests import example_experiments
from workflow_scripts.lib import change_bars, csv_tables, experiments_section
from workflow_scripts.lib.effects import OTHER_WORK, censored_p, contrast, treatment_effects
from workflow_scripts.lib.experiments import outcomes
from workflow_scripts.lib.loss_history import step_noise
from workflow_scripts.lib.power import seeds_to_decide
from workflow_scripts.lib.ranks import score


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    paths = example_experiments.write(tmp_path_factory.mktemp("experiment"))
    return {name: csv_tables.read(path) for name, path in paths.items()}


def test_the_contrast_is_scipys_paired_t_on_logarithms():
    treated, baseline = {1: 1.1, 2: 1.3, 3: 1.25}, {1: 1.0, 2: 1.05, 3: 1.2}
    reference = stats.ttest_rel(np.log(list(treated.values())), np.log(list(baseline.values())))
    found = contrast(treated, baseline)
    assert found.p == pytest.approx(reference.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(reference.confidence_interval()))
    welch = stats.ttest_ind(np.log(list(treated.values())), np.log([1.0, 1.05, 1.2]), equal_var=False)
    assert contrast(treated, {7: 1.0, 8: 1.05, 9: 1.2}).p == pytest.approx(welch.pvalue)


def test_one_seed_decides_nothing():
    assert contrast({1: 2.0}, {1: 1.0}).low is None


def test_the_published_order_and_its_real_weights():
    path = Path(__file__).parents[1] / "resources/published/cpu_optimizations.methods.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = pd.DataFrame(csv.DictReader(file))
    memory = next(column for column in rows if "alloc" in column)
    values = pd.DataFrame({
        "loss": rows["loss"].astype(float), "time_s": rows["train_s"].astype(float),
        "memory_bytes": rows[memory].astype(float),
    })  # fmt: skip
    scored = score(values)
    assert list(scored["rank"]) == list(range(1, 16))  # the table is printed in this order
    assert scored.score.min() == pytest.approx(-3.497, abs=1e-3)
    weights = scored.iloc[0][["weight_loss", "weight_time", "weight_memory"]]
    assert [round(100 * weight) for weight in weights] == [16, 62, 22]


def test_what_was_put_in_is_found(tables):
    effects = tables["treatment_effects"].set_index(["treatment", "outcome"])
    assert effects.loc[("bf16", "token_time_s")].ratio == pytest.approx(0.65, rel=0.02)
    assert effects.loc[("bf16", "token_time_s")].verdict == "better"
    assert effects.loc[("quarter_batch", "token_time_s")].verdict == "worse"
    assert effects.loc[("quarter_batch", "step_time_s")].ratio < 0.5
    assert effects.loc[("quarter_batch", "step_time_s")].verdict == OTHER_WORK
    assert effects.loc[("bf16", "step_time_s")].verdict == "better"
    assert set(effects.loc["equal"].verdict) <= {"same", "undecided"}
    never = effects.loc[("sgd", "tokens_to_loss")]
    assert never.n_reached == 0
    assert math.isnan(never.ratio)
    crossed = tables["interactions"].set_index(["level_a", "level_b", "outcome"])
    assert crossed.loc[("bf16", "embeddings_x2", "token_time_s")].interaction == pytest.approx(0.86, rel=0.03)
    assert crossed.loc[("bf16", "embeddings_x2", "token_time_s")].verdict == "below"
    assert crossed.loc[("equal", "layers_x2", "token_time_s")].verdict == "undecided"


def test_a_step_of_fewer_tokens_is_other_work_however_many_steps_there_are(tables):
    table = tables["outcomes"].copy()
    table["tokens_at_end"] = table.tokens_at_end.max()
    effects = treatment_effects(table).set_index(["treatment", "outcome"])
    assert effects.loc[("quarter_batch", "step_time_s")].verdict == OTHER_WORK
    assert effects.loc[("quarter_batch", "step_time_s")].tokens_ratio == pytest.approx(0.25)
    assert effects.loc[("quarter_batch", "train_s")].verdict != OTHER_WORK


def test_the_scatter_of_a_loss_is_that_around_its_fall():
    random = np.random.default_rng(3)
    falling = np.linspace(4, 2, 4000)
    assert step_noise(falling + random.normal(0, 0.1, 4000)) == pytest.approx(0.1, rel=0.05)
    assert step_noise(falling) < 0.001
    assert step_noise(np.array([3.0, np.nan, 2.0])) is None


def test_runs_that_never_arrive_need_enough_seeds():
    reached, never = [(1.0, True)], [(2.0, False)]
    assert censored_p(never * 3, reached * 3) == pytest.approx(2 / 20)
    assert censored_p(never * 5, reached * 5) == pytest.approx(2 / 252)
    assert censored_p(never * 3, never * 3) == 1


def test_more_seeds_decide_smaller_effects():
    assert seeds_to_decide(0.03, 0.02, 0.01) < seeds_to_decide(0.015, 0.02, 0.01)
    assert seeds_to_decide(0.0, 0.01, 0.02) is not None
    assert seeds_to_decide(0.01, 0.5, 0.01) is None


def test_intervals_cover_the_truth():
    figures = simulate(40, 3, 1)
    assert figures["coverage_effects_3"] > 0.88
    assert figures["coverage_interactions_3"] > 0.85
    assert figures["equal_called_better_3"] <= 0.1
    assert figures["unreached_with_interval_3"] == 0


def test_the_section_says_what_the_tables_hold(tables):
    names = experiments_section.NAMES
    shown = experiments_section.section({name: tables[name] for name in names}, "example")
    assert "`bf16` 0.65" in " ".join(shown["effects"])
    assert "0 of 3 runs did" in " ".join(shown["effects"])
    assert "not judged" in shown["undecided"]
    heads = [head.text for head in shown["effects_table"].heads]
    printed = [row[heads.index("p, Holm")].text for row in shown["effects_table"].rows]
    assert "< 0.0001" in printed
    assert not {"0", "0.00"} & set(printed)
    assert experiments_section.section({}, "example") is None
    runs = tables["runs"].assign(card=["GPU-1" if seed < 3 else "GPU-2" for seed in tables["runs"].seed])
    runs.loc[runs.treatment == "layers_x2", "card"] = "GPU-2"
    split = experiments_section.section({**{name: tables[name] for name in names}, "runs": runs}, "example")
    assert "on 2 equal cards" in split["method"][1]
    assert "2 of 69" in split["method"][1]
    assert "equal cards" not in shown["method"][1]
    assert "calls for memory 9,000 times" in shown["allocations"][0]
    assert "`layers_x2`, 1.56× as many" in shown["allocations"][0]
    failed = [cell.text for cell in shown["allocations_table"].rows[2]]
    assert any("memray cannot be imported" in text for text in failed)
    counted = tables["allocations"].set_index("treatment")
    assert counted.loc["baseline"].allocations_most == 9002
    assert math.isnan(counted.loc["bf16"].allocations)


def test_equal_seconds_are_those_of_a_models_own_runs():
    """A deep model that takes ten times as long is not read where the wide one's runs end."""
    parts = [example_experiments.runs_and_curves(1, name=name) for name in ("wide", "deep")]
    runs, curves = (pd.concat(tables, ignore_index=True) for tables in zip(*parts, strict=True))
    slow = curves.name == "deep"
    curves.loc[slow, "elapsed_s"] *= 10
    found = outcomes(runs, curves)
    ends = curves.groupby(["name", "run"]).elapsed_s.max().groupby("name").min()
    assert found.groupby("name").equal_s.first().to_dict() == pytest.approx(ends.to_dict())
    assert ends["deep"] == pytest.approx(10 * ends["wide"])
    wide, deep = (found[found.name == name].loss_at_seconds.to_numpy() for name in ("wide", "deep"))
    np.testing.assert_allclose(deep, wide)
    assert found.equal_tokens.nunique() == 1


def test_marks_of_small_changes_are_told_apart(tmp_path):
    """Rounded to whole per cent, marks half a per cent apart once read −2 %, −1 %, −1 %, 0 %."""
    row = {"device": "cpu", "name": "wide", "outcome": "peak_bytes", "label_of_row": "sgd", "change": -0.018}
    figure = tmp_path / "bars.svg"
    words = {"label": "change", "caption": "", "nothing": ""}
    change_bars.draw(pd.DataFrame([row]), "change", figure=figure, data=tmp_path / "bars.csv", **words)
    marks = re.findall(r">(\S+)\s%<", figure.read_text(encoding="utf-8"))
    assert len(marks) > 2
    assert len(set(marks)) == len(marks)
