"""Claims of a document checked against its own tables: holds, does not hold, cannot be said, with the numbers.

A claim is data: a short quotation, the table and rows that it concerns, and what it says of them in one of the kinds
of `claim_kinds` and `claim_models`. This module has the verdict and the ways to pick rows.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pandas as pd

from workflow_scripts.lib.audit.arithmetic import parse
from workflow_scripts.lib.audit.findings import Finding, Severity, has_any, words
from workflow_scripts.lib.audit.frames import Row, each, value

Holds = Literal["holds", "does not hold", "cannot be said"]
SEVERITY: dict[str, Severity] = {"does not hold": "error", "cannot be said": "note"}


@dataclasses.dataclass(frozen=True)
class Table:
    """A document's table in normal form; `half_units` has half a unit of the last printed digit, by column."""

    rows: pd.DataFrame
    half_units: pd.DataFrame


Tables = dict[str, Table]
Claim = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the table says of a claim."""

    holds: Holds
    message: str
    numbers: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of claim and how it is checked."""

    name: str
    meaning: str
    advice: str
    thresholds: dict[str, float]
    check: Callable[[Claim, Tables], Verdict]

    def finding(self, claim: Claim, verdict: Verdict) -> Finding | None:
        """The finding that a claim which does not hold, or of which nothing can be said, gives; None if it holds."""
        if verdict.holds == "holds":
            return None
        return Finding(
            rule=f"claim_{self.name}",
            severity=SEVERITY[verdict.holds],
            subject=f"“{claim['quote']}”" + (f" ({claim['about']})" if "about" in claim else ""),
            message=f"{verdict.holds}: {verdict.message}",
            advice=self.advice,
            numbers=verdict.numbers,
        )


def kind(meaning: str, advice: str, **thresholds: float) -> Callable[[Callable[[Claim, Tables], Verdict]], Kind]:
    """Makes a kind of claim of a function `check_<name>(claim, tables) -> Verdict`."""

    def card(check: Callable[[Claim, Tables], Verdict]) -> Kind:
        name = check.__name__.removeprefix("check_")
        return Kind(name=name, meaning=meaning, advice=advice, thresholds=thresholds, check=check)

    return card


def pick(rows: pd.DataFrame, match: dict[str, Any] | None) -> pd.DataFrame:
    """The rows whose columns equal `match`; a list matches any of its values, a column that is absent none."""
    for column, wanted in (match or {}).items():
        if column not in rows.columns:
            return rows.iloc[:0]
        options = wanted if isinstance(wanted, list) else [wanted]
        rows = rows[rows[column].isin(options)]
    return rows


def pairs(
    rows: pd.DataFrame, one: dict[str, Any], other: dict[str, Any], same: list[str]
) -> Iterator[tuple[str, Row, Row]]:
    """Pairs (name, row of `one`, row of `other`) that agree in the columns `same`."""
    left, right = pick(rows, one), pick(rows, other)
    for a, b in itertools.product(each(left), each(right)):
        if a.index != b.index and all(value(a, column) == value(b, column) for column in same):
            yield ", ".join(str(a[column]) for column in same) or str(b.get("label", "")), a, b


def ratio_interval(table: Table, column: str, a: Row, b: Row) -> tuple[float, float, float]:
    """b / a with the interval that the printed digits leave: (ratio, low, high)."""
    known = column in table.half_units.columns
    da, db = (float(table.half_units[column].get(row.index, 0.0)) if known else 0.0 for row in (a, b))
    x, y = float(a[column]), float(b[column])
    return y / x, (y - db) / (x + da), (y + db) / (x - da)


def lacking(rows: pd.DataFrame, columns: list[str]) -> str:
    """Names those of `columns` that have no value in `rows`; empty if each has one."""
    return ", ".join(f"no {words(column)}" for column in columns if not has_any(rows, column))


def stated_interval(text: str) -> tuple[float, float]:
    """The interval that a printed quantity stands for: ±5 % where it says “about”, else half the last digit's unit."""
    found = parse(text)
    half = 0.05 * abs(found.value) if found.approximate else found.half_unit
    return found.value - half, found.value + half
