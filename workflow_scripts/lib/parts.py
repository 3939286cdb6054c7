"""Parts of the report: each answers one question by sentences, figures and tables, and all are printed alike."""

import dataclasses
from collections.abc import Sequence

import pandas as pd

from workflow_scripts.lib.page import Column, Table, table

SHOWN_ROWS = 40  # of one table; the rest is in its CSV


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shown:
    """A table with its caption, its CSV, and how many rows only that has."""

    table: Table
    caption: str
    source: str
    more: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One question: the sentences that answer it, the figures by name and title, the tables."""

    title: str
    sentences: list[str]
    figures: list[tuple[str, str]]
    tables: list[Shown]


def shown(
    rows: pd.DataFrame, columns: Sequence[Column], study: str, caption: str, name: str, most: int = SHOWN_ROWS
) -> list[Shown]:
    """The first rows of tables/NAME.csv as a table of the page; an empty list where there are none."""
    if rows.empty:
        return []
    printed = table(rows.head(most), columns, study)
    return [Shown(table=printed, caption=caption, source=f"tables/{name}.csv", more=max(0, len(rows) - most))]
