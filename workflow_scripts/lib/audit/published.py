"""Brings the printed tables of a document into the form that rules read, with what must be assumed told apart.

A column's heading is its normal name, with the printed unit in brackets where the cells do not carry it themselves:
`step_time_mean_s [ms]`. Cells are as printed; empty is not stated.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from workflow_scripts.lib.audit.arithmetic import Printed, evaluate, parse
from workflow_scripts.lib.audit.claims import Table
from workflow_scripts.lib.audit.derived import complete
from workflow_scripts.lib.audit.frames import value, with_labels

NUMERIC = ("loss", "speedup", "expected_speedup", "result", "exact", "rank", "spread", "mfu")
NUMERIC_ENDS = ("_s", "_bytes", "_percent", "_size", "_length", "_steps", "_ratio", "_rate", "_tokens")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """A document: its tables as printed and in normal form, its claims, its known mistakes, and what was assumed."""

    study: str
    title: str
    about: dict[str, dict[str, str]]
    printed: dict[str, pd.DataFrame]
    tables: dict[str, Table]
    claims: list[dict[str, Any]]
    assumptions: list[dict[str, Any]]
    mistakes: dict[str, dict[str, Any]]


def load_documents(folder: Path) -> list[Document]:
    """Reads `documents.yaml`, `claims.yaml`, `assumptions.yaml`, `mistakes.yaml` and each table's CSV from a folder.

    Raises:
        ValueError: a cell of a numeric column is not a quantity; the message names table, column and cell.
    """
    about, claims, assumed, mistakes = (
        _yaml(folder / f"{name}.yaml") for name in ("documents", "claims", "assumptions", "mistakes")
    )
    documents = []
    for study, described in about.items():
        names = list(described["tables"])
        printed = {name: _read(folder / f"{study}.{name}.csv") for name in names}
        mine = [entry for entry in assumed if entry["table"].split(".")[0] == study]
        tables = {
            name: normalise(frame, [entry for entry in mine if entry["table"] == f"{study}.{name}"], f"{study}.{name}")
            for name, frame in printed.items()
        }
        documents.append(
            Document(
                study=study,
                title=described["title"],
                about=described["tables"],
                printed=printed,
                tables=tables,
                claims=claims[study],
                assumptions=mine,
                mistakes=mistakes[study],
            )
        )
    return documents


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def normalise(printed: pd.DataFrame, assumptions: list[dict[str, Any]], where: str = "table") -> Table:
    """Turns a printed table into normal form.

    Args:
        printed: the cells as text, the empty string where nothing is stated.
        assumptions: entries with `set` or `compute`, and optionally `where`, for this table.
        where: the table's name, for error messages.
    """
    rows, half_units = pd.DataFrame(index=printed.index), pd.DataFrame(index=printed.index)
    for heading in printed.columns:
        name, _, unit = heading.partition(" [")
        cells = printed[heading]
        if not _is_numeric(name):
            rows[name] = pd.Series([cell or None for cell in cells], index=printed.index, dtype=object)
            continue
        found = [_quantity(cell, unit.rstrip("]"), f"{where}, {name}") for cell in cells]
        rows[name] = [float("nan") if one is None else one.value for one in found]
        half_units[name] = [0.0 if one is None else one.half_unit for one in found]
        if any(one is not None and one.approximate for one in found):
            rows[f"{name}_approximate"] = [one is not None and one.approximate for one in found]
    rows, assumed = _assume(rows, assumptions)
    rows = complete(rows)
    if "sequence_length" in assumed:
        assumed.add("n_tokens")
    if assumed:
        rows["assumed"] = ",".join(sorted(assumed))
    return Table(rows=with_labels(rows), half_units=half_units)


def _is_numeric(name: str) -> bool:
    return name.startswith("n_") or name in NUMERIC or name.endswith(NUMERIC_ENDS)


def _quantity(cell: str, unit: str, where: str) -> Printed | None:
    if not cell:
        return None
    try:
        return parse(cell, unit)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _assume(rows: pd.DataFrame, assumptions: list[dict[str, Any]]) -> tuple[pd.DataFrame, set[str]]:
    """Fills empty cells by assumptions; gives the columns that were filled, too."""
    filled: set[str] = set()
    for entry in assumptions:
        for index, row in rows.iterrows():
            if any(value(row, column) != wanted for column, wanted in entry.get("where", {}).items()):
                continue
            given = dict(entry.get("set", {}))
            known = {column: float(found) for column, found in row.items() if isinstance(found, int | float)}
            given |= {column: evaluate(str(text), known) for column, text in entry.get("compute", {}).items()}
            for column, found in given.items():
                if column not in rows.columns:
                    rows[column] = pd.Series(
                        [None] * len(rows), index=rows.index, dtype=object if isinstance(found, str) else float
                    )
                if value(rows.loc[index], column) is None:
                    rows.loc[index, column] = found
                    filled.add(column)
    return rows, filled
