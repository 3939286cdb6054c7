"""What two studies say of their documents' claims: each verdict by the numbers that should give it."""

import pandas as pd
import pytest

from tests import example_probes, test_sizes
from workflow_scripts.lib import csv_tables, judgements
from workflow_scripts.lib import own_claims_attention_and_precision as attention
from workflow_scripts.lib import own_claims_model_sizes as sizes
from workflow_scripts.lib.evidence import CANNOT, DOES_NOT, HOLDS, Evidence

GB = 1e9


def cell(model: str, peak_bytes: float | None, **changes: object) -> dict:
    return {
        "device": "gpu", "model": model, "status": "ok", "n_params": sizes.PARAMETERS[model], "n_embd": 1600,
        "n_layer": 48, "mode": "forward_backward", "peak_allocated_bytes": peak_bytes, **sizes.PUBLISHED, **changes,
    }  # fmt: skip


def cells(*rows: dict) -> Evidence:
    return Evidence({"cells": pd.DataFrame(rows)})


def test_bytes_are_judged_at_the_documents_size_only():
    at_size = cells(cell("xl", 24 * GB), cell("2.7b", 30 * GB))
    assert sizes.xl_parameters_weigh_8_gb(at_size)[0] == HOLDS
    verdict, why = sizes.largest_parameters_weigh_10_8_gb(at_size)
    assert (verdict, "13.63 GB" in why) == (DOES_NOT, True)
    assert sizes.xl_takes_20_to_25_gb(at_size)[0] == HOLDS
    assert sizes.xl_takes_20_to_25_gb(cells(cell("xl", 27 * GB)))[0] == DOES_NOT
    assert sizes.two_largest_exceed_the_card(at_size)[0] == HOLDS
    shrunk = cells(cell("xl", 24 * GB, n_params=2e6), cell("2.7b", 30 * GB, n_params=4e6))
    for check in (sizes.xl_parameters_weigh_8_gb, sizes.xl_takes_20_to_25_gb, sizes.two_largest_exceed_the_card):
        assert check(shrunk)[0] == CANNOT


def test_activations_are_the_peak_of_a_forward_pass_less_the_parameters():
    evidence = cells(cell("xl", 8 * GB + 7 * GB, mode="forward"))
    assert sizes.xl_activations_take_6_to_8_gb(evidence)[0] == HOLDS
    assert sizes.xl_activations_take_6_to_8_gb(cells(cell("xl", 24 * GB, mode="forward")))[0] == DOES_NOT


def test_what_an_optimizer_keeps_is_counted_in_parameters():
    for copies, verdict in ((2.0, HOLDS), (1.0, DOES_NOT), (3.5, DOES_NOT)):
        both = 10 * GB
        evidence = cells(cell("xl", both), cell("xl", both + copies * 4 * sizes.PARAMETERS["xl"], mode="step"))
        assert sizes.optimizer_keeps_2_to_3_copies(evidence)[0] == verdict


def test_advice_is_judged_by_measured_peaks():
    def advised(xl: float, largest: float) -> Evidence:
        return cells(cell("xl", xl, batch_size=2, sequence_length=256),
                     cell("2.7b", largest, batch_size=1, sequence_length=128))  # fmt: skip

    assert sizes.reduced_shapes_fit_the_card(advised(15 * GB, 15 * GB))[0] == HOLDS
    assert sizes.reduced_shapes_fit_the_card(advised(15 * GB, 27 * GB))[0] == DOES_NOT
    assert sizes.reduced_shapes_fit_the_card(advised(15 * GB, None))[0] == CANNOT


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(1.6, 1.9, HOLDS), (2.1, 2.3, DOES_NOT), (1.9, 2.3, HOLDS), (0.7, 0.9, DOES_NOT)]
)
def test_a_speed_up_is_wrong_where_its_interval_lies_outside(low, high, verdict):
    rows = pd.DataFrame({"device": "gpu", "precision": "tf32", "execution": "eager", "mode": "step",
                         "speedup": [(low + high) / 2], "low": low, "high": high})  # fmt: skip
    assert sizes.tf32_is_1_5_to_2_times_as_fast(Evidence({"speedups": rows}))[0] == verdict


def test_warm_up_is_judged_in_fp32():
    rows = pd.DataFrame({"precision": ["fp32", "bf16"], "execution": "eager", "n_discarded": 5, "cell": ["a", "b"],
                         "mean_ratio": [1.01, 1.4]})  # fmt: skip
    assert sizes.five_warm_ups_are_adequate(Evidence({"warm_up": rows}))[0] == HOLDS
    rows.loc[0, "mean_ratio"] = 1.2
    assert sizes.five_warm_ups_are_adequate(Evidence({"warm_up": rows}))[0] == DOES_NOT


def test_a_clock_that_stood_still_explains_no_spread():
    def seen(clocks: list[float], throttle: str = "none") -> Evidence:
        rows = pd.DataFrame({"device": "gpu", "clock_mhz": clocks, "throttle": throttle, "step_time_std_s": 0.1,
                             "step_time_mean_s": 1.0})  # fmt: skip
        return Evidence({"cells": rows, "devices": pd.DataFrame({"device": ["gpu"], "type": ["cuda"]})})

    assert sizes.clocks_explain_the_spread(seen([1980, 1980]))[0] == DOES_NOT
    assert sizes.clocks_explain_the_spread(seen([1980, 1400]))[0] == CANNOT
    assert sizes.clocks_explain_the_spread(seen([1980, 1980], "thermal"))[0] == CANNOT


def test_one_process_is_as_good_only_if_nothing_changes():
    evidence = Evidence({"isolation": test_sizes.tables()["isolation"]})
    assert sizes.one_process_is_reliable(evidence)[0] == DOES_NOT
    same = evidence["isolation"].assign(verdict="same")
    assert sizes.one_process_is_reliable(Evidence({"isolation": same}))[0] == HOLDS


@pytest.fixture(scope="module")
def probed(tmp_path_factory) -> Evidence:
    paths = example_probes.write(tmp_path_factory.mktemp("probes"))
    return Evidence({name: csv_tables.read(path) for name, path in paths.items()})


def test_probes_judge_the_other_document(probed):
    """By the made-up probes: growth is the device's, terms in fp16 are off either way, and five matrices are kept."""
    verdicts = {
        "synchronising_costs_the_growth": DOES_NOT, "products_take_most_time": HOLDS,
        "optimizer_takes_a_huge_chunk": DOES_NOT, "upcasting_changes_nothing": DOES_NOT,
        "sums_in_fp32_are_more_accurate": HOLDS, "products_have_much_more_flops": HOLDS,
        "backward_needs_two_matrices": DOES_NOT, "longer_contexts_exceed_the_card": HOLDS,
        "context_4096_needs_3_gb": DOES_NOT, "the_rest_cannot_be_run": CANNOT,
    }  # fmt: skip
    found = {check.__name__: check(probed) for check in attention.CHECKS}
    assert {name: found[name][0] for name in verdicts} == verdicts
    assert all(why for _, why in found.values())


def test_mixed_precision_must_gain_along_every_axis():
    base = {"device": "gpu", "precision": "bf16", "execution": "eager", "mode": "step"}
    rows = [base | {"batch_size": b, "n_params": n, "sequence_length": 128, "speedup": s}
            for b, n, s in ((4, 1, 1.2), (16, 1, 2.0), (4, 9, 1.8))]  # fmt: skip
    judged = attention.mixed_is_faster_where_there_is_more
    assert judged(Evidence({"speedups": pd.DataFrame(rows)}))[0] == HOLDS
    rows[1]["speedup"] = 1.1
    assert judged(Evidence({"speedups": pd.DataFrame(rows)}))[0] == DOES_NOT
    assert judged(Evidence({"speedups": pd.DataFrame(rows[:1])}))[0] == CANNOT


def test_an_extent_is_told_once_if_both_ends_read_the_same():
    assert judgements.extent(["1 s", "1 s"]) == "1 s"
    assert judgements.extent(["1 s", "1 s", "2 s"]) == "1 s to 2 s"


def test_blocks_judge_the_documents_arithmetic():
    rows = pd.DataFrame({
        "device": "gpu", "precision": "bf16", "mode": "step", "batch_size": 16, "sequence_length": 128,
        "what": ["mm in blocks.*.mlp.up", "_log_softmax outside the blocks"], "block_bytes": [3 * 2**20, 82e6],
        "arithmetic": ["16 × 128 × 768 × 2 bytes = 3.00 MiB", "16 × 128 × 10000 × 4 bytes = 78.1 MiB"],
    })  # fmt: skip
    evidence = Evidence({"memory_blocks": rows})
    assert attention.a_layers_tensor_takes_0_75_mib(evidence)[0] == DOES_NOT
    assert attention.logits_are_the_largest_block(evidence)[0] == HOLDS
    assert attention.logits_are_the_largest_block(Evidence({"memory_blocks": rows.head(1)}))[0] == DOES_NOT


def test_a_slow_first_step_is_seen_where_steps_are_long():
    """1.2 s before steps of 0.957 s raise the mean of ten by 2 % only."""
    rows = pd.DataFrame({"cell": ["2.7b"] * 2, "device": "gpu", "n_discarded": [0, 1]})
    rows = rows.assign(execution="eager", precision="fp32", first_step_s=1.195, steady_s=0.957, mean_ratio=[1.019, 1.0])
    verdict, told = sizes.without_warm_up_is_slower(Evidence({"warm_up": rows}))
    assert verdict == HOLDS
    assert "1.25×" in told
    assert "1 cell" in told.replace("\N{NO-BREAK SPACE}", " ")
    assert sizes.without_warm_up_is_slower(Evidence({"warm_up": rows.assign(first_step_s=0.96)}))[0] == DOES_NOT
    other = rows.assign(device="cpu", first_step_s=0.96)  # a cell of the same name
    assert sizes.without_warm_up_is_slower(Evidence({"warm_up": pd.concat([rows, other])}))[0] == DOES_NOT
