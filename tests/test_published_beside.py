"""A document beside a study: its tables row by row, what is unlike, and its claims against what was measured."""

import re
from pathlib import Path

import pandas as pd
import pytest

from tests import example_comparisons, example_tables
from tests.example_comparisons import PAIRING, PRINTED
from workflow_scripts.lib import csv_tables, own_claims, published_section
from workflow_scripts.lib import own_claims_wide_vs_deep as checks
from workflow_scripts.lib import published_beside as beside
from workflow_scripts.lib.audit.claims import Table
from workflow_scripts.lib.audit.published import load_documents
from workflow_scripts.lib.evidence import CANNOT, DOES_NOT, HOLDS, Evidence

PUBLISHED = Path(__file__).parents[1] / "resources" / "published"


def set_beside(cells, **changed):
    pairing = beside.dataclasses.replace(PAIRING, **changed)
    return beside.set_beside(pairing, Table(PRINTED, pd.DataFrame()), {"cells": cells}, {"cpu": "a CPU"})


def test_each_published_row_stands_beside_what_is_like_it():
    cells = example_tables.cells()
    rows, _ = set_beside(cells)
    means = [row for row in rows if row["quantity"] == "mean" and row["device"] == "cpu"]
    ours = cells[(cells.device == "cpu") & (cells.model == "wide") & (cells.precision == "fp32")]
    wide = [row for row in means if row["published_row"] == "Wide"]
    assert len(wide) == ours.batch_size.nunique()
    for row in wide:
        same = ours[ours.batch_size == int(row["our_row"])]
        assert row["ours"] == pytest.approx(same.step_time_s.median())
        assert row["ratio"] == pytest.approx(0.3 / row["ours"])
        assert row["ours_low"] <= row["ours"] <= row["ours_high"]
    (huge,) = [row for row in means if row["published_row"] == "huge"]
    assert (huge["published"], huge["published_status"], huge.get("ours")) == (None, "oom", None)


def test_several_rows_of_ours_are_pooled_from_least_to_greatest():
    cells = pd.DataFrame({"device": "cpu", "model": "wide", "precision": "fp32", "step_time_s": [1.0, 4.0, 2.0],
                          "execution": "eager", "batch_size": 4})  # fmt: skip
    (row,) = [r for r in set_beside(cells, axes=())[0] if (r["quantity"], r["published_row"]) == ("mean", "Wide")]
    assert (row["ours"], row["ours_low"], row["ours_high"], row["n"]) == (2.0, 1.0, 4.0, 3)


def test_columns_of_ours_can_stand_as_rows():
    printed = Table(pd.DataFrame({"component": ["loss"], "dtype": ["FP32"]}), pd.DataFrame())
    pairing = beside.Pairing(
        published="dtypes", ours="autocast", title="Dtypes", melted=("loss", "logits"), join={"component": "name"},
        quantities=(beside.Quantity(title="dtype", published="dtype", ours="value", unit="text"),),
    )  # fmt: skip
    ours = pd.DataFrame({"device": ["gpu"], "loss": ["float32"], "logits": ["float16"]})
    (row,), _ = beside.set_beside(pairing, printed, {"autocast": ours}, {})
    assert (row["published"], row["ours"]) == ("FP32", "float32")


def test_what_is_unlike_is_told_and_what_is_not_stated_is_not_taken_to_be_alike():
    _, conditions = set_beside(example_tables.cells())
    told = {(row["condition"], row.get("device")): row["verdict"] for row in conditions}
    assert told[("device", "cpu")] == beside.UNLIKE
    assert told[("processes", "cpu")] == beside.UNSTATED
    assert told[("warm-up", None)] == beside.CANNOT


def test_a_condition_is_about_the_rows_that_it_names():
    ours = pd.DataFrame({"device": "gpu", "optimizer": ["adamw", "sgd"], "momentum": [0.9, 0.0], "run": ["a", "b"]})
    asked = beside.Condition(title="momentum", published="momentum", ours="momentum", where={"optimizer": "sgd"})
    for condition, told in ((asked, "0"), (beside.dataclasses.replace(asked, where={}), "0.900 and 0")):
        pairing = beside.Pairing(
            published="runs", ours="runs", title="Runs", join={"run": "run"}, conditions=(condition,)
        )
        printed = Table(pd.DataFrame({"run": ["a", "b"]}), pd.DataFrame())
        _, (found,) = beside.set_beside(pairing, printed, {"runs": ours}, {})
        assert found["ours"] == told


def test_a_pairing_names_its_fault():
    with pytest.raises(ValueError, match=r"table cells has no column n_samplez"):
        set_beside(example_tables.cells(), where={"n_samplez": 3})
    with pytest.raises(ValueError, match="no table of a study is called cellz"):
        set_beside(example_tables.cells(), ours="cellz")


def test_without_measurements_the_published_figures_stand_alone():
    rows, conditions = set_beside(pd.DataFrame())
    tables = {"published": pd.DataFrame(rows, columns=beside.BESIDE_COLUMNS), "checked_claims": pd.DataFrame(),
              "published_conditions": pd.DataFrame(conditions, columns=beside.CONDITION_COLUMNS)}  # fmt: skip
    (part,) = published_section.section(tables, {}, "example")["parts"]
    text = " ".join(cell.text for row in part.tables[0].table.rows for cell in row)
    assert "Wide 300 " in text
    assert "out of memory" in text
    assert part.sentences[0] == "Nothing measured here has a counterpart in this table."


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("beside/*.yaml")), ids=lambda path: path.stem)
def test_the_pairings_name_columns_that_the_documents_have(path):
    documents = {document.study: document for document in load_documents(PUBLISHED)}
    for pairing in beside.read_pairings(path):
        rows = documents[path.stem].tables[pairing.published].rows
        used = [*pairing.join, *pairing.rows, *(one.published for one in pairing.quantities if one.published)]
        assert set(used) <= set(rows.columns)
        assert len(beside.pick(rows, pairing.rows))
        for column, words in pairing.words.items():
            assert set(words) <= {beside._text(value) for value in rows[column]}
        for why in pairing.cannot.values():
            assert not re.search(r"\d", why), "a number of a sentence comes from a table"


def test_every_claim_names_a_check_that_there_is_or_none():
    for document in load_documents(PUBLISHED):
        named = [claim["ours"] for claim in document.claims if "ours" in claim]
        assert set(named) <= set(own_claims.CHECKS), document.study


@pytest.mark.parametrize("check", own_claims.CHECKS)
def test_without_measurements_no_claim_can_be_said_to_hold_or_not(check):
    assert own_claims.CHECKS[check](Evidence({}))[0] == CANNOT


def test_speed_ups_that_differ_are_not_consistent():
    rows = example_comparisons.compare()
    assert checks.speed_up_is_consistent(Evidence({"device_comparison": rows}))[0] == HOLDS
    rows.loc[rows["name"] == "deep", "ratio"] *= 0.8
    assert checks.speed_up_is_consistent(Evidence({"device_comparison": rows}))[0] == DOES_NOT
    assert checks.deep_suffers_on_slow(Evidence({"device_comparison": rows}))[0] == DOES_NOT


@pytest.mark.parametrize(
    ("n", "between_rounds", "verdict"),
    [
        ([40, 3], [0.001, 0.001], DOES_NOT),
        ([40, 40], [0.001, 0.1], DOES_NOT),
        ([40, 40], [0.001, 0.01], HOLDS),
        ([40, 40], [None, None], CANNOT),
    ],
)
def test_a_timer_is_repeatable_by_its_samples_and_its_rounds(n, between_rounds, verdict):
    timers = pd.DataFrame({"timer": "blocked_autorange", "n": n, "between_rounds": between_rounds})
    judged, why = checks.timers_are_repeatable(Evidence({"timers": timers}))
    assert judged == verdict
    assert why


def test_a_study_without_a_document_has_no_such_part():
    empty = dict.fromkeys(("checked_claims", "published", "published_conditions"), pd.DataFrame())
    assert published_section.section(empty, {}, "example") is None


def test_a_claim_about_nothing_in_particular_says_so_by_silence(tmp_path):
    checked = own_claims.check_claims(example_comparisons.CLAIMS, example_comparisons.VERDICTS, Evidence({}))
    csv_tables.write(pd.DataFrame(checked, columns=own_claims.COLUMNS), tmp_path / "checked_claims.csv")
    tables = {"checked_claims": csv_tables.read(tmp_path / "checked_claims.csv"), "published": pd.DataFrame(),
              "published_conditions": pd.DataFrame()}  # fmt: skip
    found = published_section.section(tables, {}, "example")
    assert [claim["about"] for claim in found["claims"]] == ["", "", ""]
    assert "3\u00a0claims of the document 0\u00a0hold, 0\u00a0do not, and of 3 nothing" in found["counted"]
