"""Tables and sentences of the probes: arithmetic by hand, ends that are explained, counts that follow from layers."""

import json

import pandas as pd
import pytest

from tests import example_probes
from workflow_scripts import (
    draw_accumulation,
    draw_attention,
    draw_attention_memory,
    draw_clocks,
    draw_operator_modes,
    draw_precision_drift,
    draw_warm_up,
    run_probe,
)
from workflow_scripts.lib import csv_tables, probes_section
from workflow_scripts.lib.attention_table import attention_rows, borders
from workflow_scripts.lib.cold_steps import execution_rows, warm_up_rows
from workflow_scripts.lib.outcome import Outcome
from workflow_scripts.lib.probe_tables import bound, clock_rows, operator_rows
from workflow_scripts.lib.probes.clocks import covered

DRAWS = {
    draw_attention: "attention",
    draw_attention_memory: "attention",
    draw_accumulation: "accumulation",
    draw_precision_drift: "autocast_steps",
    draw_clocks: "clocks",
    draw_operator_modes: "operator_probes",
    draw_warm_up: "warm_up",
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    paths = example_probes.write(tmp_path_factory.mktemp("probes"))
    return {name: csv_tables.read(path) for name, path in paths.items()}


def said(tables, title):
    return " ".join(next(part for part in probes_section.section(tables, "example") if part.title == title).sentences)


def test_attention_is_held_against_what_the_device_could_do(tables):
    row = tables["attention"].query("backend == 'flash' and sequence_length == 16384").iloc[0]
    flops = 4 * 8 * 16384**2 * 64
    assert row.ideal_forward_s == pytest.approx(flops / 4e13)
    assert row.forward_ratio == pytest.approx(16384**2 * 1e-10 / (flops / 4e13))
    assert row.ideal_bound == "FLOPs"
    assert row.score_bytes == 8 * 16384**2 * 4
    unknown = attention_rows(example_probes.attention(), pd.DataFrame(), "record")[0]
    assert unknown["forward_ratio"] is None
    assert unknown["forward_s"] > 0


def test_the_end_of_attention_is_explained_by_bytes(tables):
    ends = borders(tables["attention"]).set_index("backend")
    assert ends.loc["math", "longest"] == 8192
    assert ends.loc["math", "ended_at"] == 16384
    assert ends.loc["math", "needed_bytes"] > ends.loc["math", "capacity_bytes"]
    assert pd.isna(ends.loc["flash", "ended_at"])
    text = said(tables, "Attention alone")
    assert "which explains it" in text
    assert "16,384 tokens need" in text


def test_a_backend_whose_process_died_has_a_row(tables):
    row = tables["attention"].query("backend == 'cudnn'").iloc[0]
    assert (row.status, row.reason) == ("unavailable", "no kernel")


def test_rounding_of_the_terms_is_told_apart_from_that_of_the_sum(tables):
    last = tables["accumulation"].query("terms == 1000")
    assert (last.input_error + last.sum_error).to_list() == pytest.approx(last.error.to_list())
    assert "changes nothing" in said(tables, "Adding up in low precision")


def test_clocks_say_what_a_step_waits_for(tables):
    assert tables["clocks"].set_index("sequence_length")["bound"].to_dict() == {
        64: "launch",
        128: "launch",
        1024: "device",
    }
    text = said(tables, "Host, device and wall")
    assert "launch-bound up to 128 tokens" in text
    assert "From 1,024 tokens on" in text
    assert bound(host_share=0.99, device_share=None) == "one clock"
    assert bound(host_share=0.3, device_share=0.5) == "both"
    assert bound(host_share=None, device_share=None) is None


def test_kernels_that_overlap_count_once():
    assert covered([(0, 4), (2, 6), (10, 11), (10.5, 10.7)]) == 7
    assert covered([]) == 0


def test_on_a_cpu_clocks_coincide_and_nobody_says_launch_bound():
    record = example_probes.clocks()
    for row in record["result"]["rows"]:
        row |= {"device_s": None, "wall_s": [0.0042] * 5}
    rows = pd.DataFrame(clock_rows(record, "record"))
    text = said({"clocks": rows}, "Host, device and wall")
    assert "coincide" in text
    assert "nothing is launch-bound" in text


def test_counts_follow_from_layers_or_are_told():
    rows, counts = operator_rows(example_probes.operators(), "record")
    assert all(count["agrees"] for count in counts)
    assert {count["what"] for count in counts} == {"products of linear maps", "products of attention"}
    softmax = next(row for row in rows if row["operator"] == "aten::_softmax")
    assert softmax["flops"] == 5 * 4 * 2 * 16**2 * 3  # five a score, batch × heads × T², three layers
    _, counts = operator_rows(example_probes.operators(n_products=14.0), "record")
    assert [count["agrees"] for count in counts].count(False) == 3


def test_a_wrong_count_stands_in_the_report(tmp_path):
    paths = example_probes.write(tmp_path, example_probes.operators(n_products=14.0))
    text = said({name: csv_tables.read(path) for name, path in paths.items()}, "Operators of each pass")
    assert "do not follow from the number of layers: products of linear maps in forward" in text


def test_shares_of_each_pass_sum_to_one(tables):
    sums = tables["operator_probes"].groupby("mode")["share"].sum()
    assert sums.to_list() == pytest.approx([1.0, 1.0])


def test_what_warm_up_is_worth_by_hand():
    rows = {row["n_discarded"]: row for row in warm_up_rows(example_probes.cell("a", 0.11, 0.010), "record")}
    assert rows[0]["mean_s"] == pytest.approx((0.11 + 0.015 + 8 * 0.010) / 10)
    assert rows[1]["mean_s"] == pytest.approx((0.015 + 9 * 0.010) / 10)
    assert rows[5]["mean_ratio"] == pytest.approx(1.0)
    assert rows[0]["median_ratio"] == pytest.approx(1.0)
    assert rows[0]["extra_s"] == pytest.approx(0.1 + 0.005)
    short = warm_up_rows(example_probes.cell("short", 0.1, 0.01, n=12), "record")
    assert [row["n_discarded"] for row in short] == [0, 1, 2]


def test_compiling_pays_after_so_many_steps():
    compiled, graphed = execution_rows(example_probes.cells())
    assert compiled["pays_after_steps"] == 4975  # (20.0 s − 0.1 s) / 4 ms
    assert compiled["speedup"] == pytest.approx(10 / 6)
    assert graphed["pays_after_steps"] is None
    assert execution_rows(pd.DataFrame()) == []


def test_every_part_has_sentences_and_no_empty_study_has_one(tables):
    parts = probes_section.section(tables, "example")
    assert len(parts) == 7
    assert all(part.sentences for part in parts)
    assert not [sentence for part in parts for sentence in part.sentences if "nan" in sentence.split()]
    assert probes_section.section({}, "example") == []


@pytest.mark.parametrize("script", DRAWS, ids=lambda script: script.__name__.split(".")[-1])
def test_figures_are_drawn_or_say_why_not(script, tables, tmp_path):
    name = DRAWS[script]
    for kind, table in (("full", tables[name]), ("empty", tables[name].head(0))):
        path = tmp_path / f"{kind}.csv"
        table.to_csv(path, index=False)
        figure, data = tmp_path / f"{kind}.svg", tmp_path / f"{kind}_drawn.csv"
        script.main(**{name: path}, figure=figure, data=data, spec={})
        assert ("data-nothing" in figure.read_text()) == (kind == "empty")
        assert list(csv_tables.read(data).columns)


def outcome(status, rows):
    return Outcome(
        status=status, reason="" if status == "ok" else "it died", result={"rows": rows}, peak_process_bytes=5,
        wall_s=1.0, started_at="a", ended_at="b",
    )  # fmt: skip


def test_a_part_that_dies_keeps_its_rows_and_leaves_the_others_alone(tmp_path, monkeypatch):
    ends = iter([outcome("killed", [{"n": 1}]), outcome("ok", [{"n": 2}])])
    monkeypatch.setattr(run_probe, "run_isolated", lambda *args, **kwargs: next(ends))
    monkeypatch.setattr(run_probe, "announce", lambda text: None)
    probe = example_probes.attention()["spec"] | {"backends": ["math", "flash"], "compiled": [False], "timeout_s": 5.0}
    spec = {"probe": probe, "study": "example", "code": "c0de", "environment": {}}
    paths = {name: tmp_path / name for name in ("tokens", "corpus", "device", "calibration")}
    run_probe.main(**paths, record=tmp_path / "probe.json", spec=spec)
    record = json.loads((tmp_path / "probe.json").read_text())
    assert record["status"] == "ok"
    assert record["result"]["rows"] == [{"n": 1}, {"n": 2}]
    ended = {"status": "killed", "reason": "it died", "backends": ["math"], "compiled": [False]}
    assert record["result"]["ended"] == [ended]
    assert record["wall_s"] == 2.0
