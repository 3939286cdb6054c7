"""The benchmarks' arithmetic, with made-up times; nothing is measured, and nanoGPT is not needed."""

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.learning import summarise as summarise_learning
from benchmarks.nanogpt_loop import load_model_code
from benchmarks.paired import paired_ratio, spread_of
from benchmarks.presets import PRESETS
from benchmarks.throughput import print_table, summarise
from benchmarks.tokens import write_characters
from workflow_scripts.lib.counts import count_parameters, flops_per_token

PRESET = PRESETS["cpu"]
CASES = list(PRESET.cases[:2])
CONDITIONS = {
    "preset": "cpu",
    "device_name": None,
    "platform": "Testos",
    "threads": 2,
    "torch": "2.11",
    "tokens": "made up",
    "nanogpt": "none",
    "differences": "none",
}


def side(step_s: float, **changes) -> dict:
    memory = {"peak_allocated_bytes": None}
    return {"cold_s": [9.0], "samples_s": [step_s] * 9, "memory": memory, "peak_process_bytes": 2**30, **changes}


def test_the_ratio_of_rounds_is_taken_round_by_round():
    theirs, ours = [0.2, 0.4, 0.3], [0.1, 0.19, 0.155]
    found = paired_ratio(theirs, ours)
    logs = np.log(np.divide(theirs, ours))
    low, high = stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs))
    assert found.value == pytest.approx(math.exp(logs.mean()))
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)))


def test_two_rounds_have_no_interval():
    found = paired_ratio([0.2, 0.2], [0.1, 0.1])
    assert (found.value, found.low, found.high) == (pytest.approx(2.0), None, None)


@pytest.mark.parametrize(("theirs", "ours"), [([], []), ([0.2], [0.1, 0.1])])
def test_rounds_must_pair(theirs, ours):
    with pytest.raises(ValueError, match="rounds: ratios need"):
        paired_ratio(theirs, ours)


def test_spreads_are_of_steps_and_of_rounds():
    found = spread_of([[1.0, 1.0, 1.0, 3.0], [2.0, 2.0, 2.0, 2.0]])
    assert found.between == 1.0
    assert found.median_s == 1.5
    assert found.cv == pytest.approx(np.std([1, 1, 1, 3]) / 1.5 / 2)


def test_figures_say_what_was_reached_and_leave_out_what_was_not_measured(capsys):
    theirs = [side(0.030), side(0.032), side(0.031)]
    ours = {"fp32 compiled": [{**side(0.025), "round": n} for n in range(3)], "fp32 eager": []}
    report = summarise(PRESET, CASES, theirs, ours, {"fp32": 1e11}, CONDITIONS)
    figures = report["figures"]
    assert figures["fp32_compiled.ratio"] == pytest.approx((30 * 32 * 31) ** (1 / 3) / 25)
    assert figures["fp32_compiled.ratio_low"] < figures["fp32_compiled.ratio"] < figures["fp32_compiled.ratio_high"]
    flops = flops_per_token(PRESET.shape, 64).training * 768
    assert figures["fp32_compiled.flop_share"] == pytest.approx(flops / 0.025 / 1e11)
    assert figures["nanogpt.tokens_per_s"] == pytest.approx(768 / 0.031)
    assert figures["nanogpt.peak_bytes"] == 2**30
    assert report["targets"] == {"fp32_compiled.ratio": 1.15, "best.ratio": 1.4}
    assert report["met"] == {"fp32_compiled.ratio": True, "best.ratio": False}
    assert not any(name.startswith("fp32_eager") for name in figures)
    print_table(report, CASES)
    printed = capsys.readouterr().out
    assert "goal 1.15×: met" in printed
    assert "not measured" in printed


def test_a_failed_round_leaves_its_pair_out():
    theirs = [side(0.030), side(0.060)]
    ours = {"fp32 compiled": [{**side(0.030), "round": 1}], "fp32 eager": []}
    assert summarise(PRESET, CASES, theirs, ours, {"fp32": 1e11}, CONDITIONS)["figures"][
        "fp32_compiled.ratio"
    ] == pytest.approx(2.0)


def test_learning_is_judged_by_the_mean_of_the_seeds_best():
    report = summarise_learning("cpu", {"fp32 eager": [[(250, 2.0), (500, 1.9)], [(250, 1.86), (500, 1.95)]]})
    assert report["figures"]["fp32_eager.best_val_loss"] == pytest.approx(1.88)
    assert report["figures"]["fp32_eager.seed_2.final_val_loss"] == 1.95
    assert report["met"] == {"fp32_eager.best_val_loss": True}


def test_presets_are_the_models_that_they_are_named_after():
    n_params = {name: count_parameters(preset.shape).total for name, preset in PRESETS.items()}
    assert n_params["cpu"] == 804_096  # nanoGPT prints 0.80M, and 802,944 + 1,152 by group
    assert round(n_params["shakespeare_char"] / 1e6, 2) == 10.75
    assert round(n_params["gpt2_124m"] / 1e6) == 124
    assert round(n_params["gpt2_1.5b"] / 1e9, 2) == 1.56


def test_characters_become_tokens_as_nanogpt_makes_them(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("abcabcabca" * 2, encoding="utf-8")
    assert write_characters(text, 3, tmp_path / "train.bin", tmp_path / "val.bin") == 18
    np.testing.assert_array_equal(np.fromfile(tmp_path / "val.bin", dtype=np.uint16), [2, 0])
    with pytest.raises(SystemExit, match="3 different characters: more than 2"):
        write_characters(text, 2, tmp_path / "train.bin")


def test_a_folder_without_model_py_is_no_checkout(tmp_path):
    with pytest.raises(ValueError, match="is no nanoGPT checkout"):
        load_model_code(tmp_path)
