"""Claims are compared with the rows that they concern: holds, does not hold, cannot be said."""

from typing import Any

import pandas as pd
import pytest

from tests.audit_rows import Rows, rows
from workflow_scripts.lib.audit.arithmetic import evaluate, parse
from workflow_scripts.lib.audit.claims import Table, Verdict
from workflow_scripts.lib.audit.frames import with_labels
from workflow_scripts.lib.audit.registry import CLAIM_KINDS


def tables(table: Rows) -> dict[str, Table]:
    frame = with_labels(pd.DataFrame(table))
    return {"t": Table(rows=frame, half_units=pd.DataFrame({"train_s": [0.005] * len(frame)}))}


def check(kind: str, table: Rows, **claim: Any) -> Verdict:
    return CLAIM_KINDS[kind].check({"table": "t", "quote": "…", **claim}, tables(table))


TIMES = rows({"treatment": "none", "train_s": 239.97}, {"treatment": "wide", "train_s": 529.70})
ENDS = {"from": {"treatment": "none"}, "to": {"treatment": "wide"}}


@pytest.mark.parametrize(
    ("percent", "verdict"), [(151, "does not hold"), (121, "holds"), (120.7, "holds"), (120, "does not hold")]
)
def test_stated_change_is_compared_within_its_digits(percent: float, verdict: str):
    assert check("change", TIMES, column="train_s", percent=percent, **ENDS).holds == verdict


def test_claim_about_missing_rows_cannot_be_said():
    assert (
        check("change", TIMES, column="train_s", percent=5, **{**ENDS, "to": {"treatment": "x"}}).holds
        == "cannot be said"
    )
    assert check("evidence", TIMES, rows={"treatment": "x"}).holds == "cannot be said"
    assert check("evidence", TIMES, columns=["temperature_c"]).holds == "cannot be said"


def test_rank_does_not_depend_on_units():
    table = rows({"rank": 1, "loss": 1.0, "train_s": 10.0}, {"rank": 2, "loss": 2.0, "train_s": 9.0})
    terms = {"loss": "value", "train_s": "inverse"}
    first = check("rank", table, terms=terms)
    second = check("rank", [{**row, "train_s": 1e3 * row["train_s"]} for row in table], terms=terms)
    names = ["weight_loss", "weight_train_s", "score_low", "score_high"]
    assert [first.numbers[name] for name in names] == pytest.approx([second.numbers[name] for name in names])
    assert first.numbers["flips"] == second.numbers["flips"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("308.03 ms", 0.30803),
        ("128.6M", 128.6e6),
        ("~2.0B", 2e9),
        ("~16GB", 16e9),
        ("0.75 MiB", 0.75 * 2**20),
        ("5.79%", 5.79),
    ],
)
def test_printed_quantities(text: str, value: float):
    assert parse(text).value == pytest.approx(value)
    assert parse(text).approximate == text.startswith("~")


@pytest.mark.parametrize("text", ["__import__('os')", "a.b", "f(1)", "x", "1 if 1 else 2"])
def test_only_arithmetic_is_computed(text: str):
    with pytest.raises(ValueError, match="cannot compute"):
        evaluate(text)
