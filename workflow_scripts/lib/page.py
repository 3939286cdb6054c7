"""Building the report's HTML: an environment that escapes everything, tables that keep their units, links to records.

A table is described by `Column`s and becomes plain cells of text before the template sees it, so the template holds no
number and no rule about numbers.
"""

import dataclasses
import html
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import jinja2
import numpy as np
import pandas as pd
from markupsafe import Markup

from workflow_scripts.lib.claims import STATUS_WORDS
from workflow_scripts.lib.quantities import MISSING, SPACE, count, digits, is_missing, listing, span, times, unit_for

LEAST_P = 0.0001


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table: where its values come from and how they are printed.

    `kind` is text, count, number, loss, ratio, percent, p, status, doubts, record, printed (a number as text),
    or a unit that scales (`s`, `bytes`, `tokens/s`, `FLOP/s`); with `low` and `high` a column holds the interval of
    `name` that two others span. Measured columns are the ones that a failed row has no values in. An axis is left out
    of the rows, and told once, if they all agree in it.
    """

    name: str
    title: str
    kind: str = "text"
    low: str | None = None
    high: str | None = None
    measured: bool = False
    axis: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """A table cell as the template prints it: text, CSS class, link, how many columns it covers, a head's unit."""

    text: str
    style: str = ""
    link: str | None = None
    covers: int = 1
    unit: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table ready to print: heads and rows, what all rows share, and the columns that nothing was measured for."""

    heads: list[Cell]
    rows: list[list[Cell]]
    common: list[tuple[str, str]]
    unmeasured: list[str]


def environment(templates: Path) -> jinja2.Environment:
    """Opens the templates; every value is escaped, and a name that is not there is an error."""
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    jinja.filters["prose"], jinja.filters["listing"] = prose, listing
    return jinja


def prose(text: str) -> Markup:
    """Escapes a sentence, sets what stands between backticks as code, and keeps an interval's ends on one line."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(plain(text)))
    return Markup(re.sub(r"\d[\d.,]*–\d[\d.,]*\d", r'<span class="span">\g<0></span>', text))


def plain(text: object) -> str:
    """Drops the control characters that no HTML page may hold; everything else stays."""
    return "".join(c for c in str(text) if c in "\n\t" or c.isprintable() or c in "\u00a0\u202f\u200d")


def record_link(record: object, study: str) -> str | None:
    """Links a record from the report beside it: a relative, quoted path, or None for what lies elsewhere.

    A record inside a recording is linked by the recording.
    """
    if is_missing(record):
        return None
    inside = re.fullmatch(rf"(recordings/{re.escape(study)}/[\w.-]+\.zip)/.+", str(record))
    if inside:
        return quote(f"../../{inside[1]}")
    path = str(record).removeprefix(f"results/{study}/")
    outside = path.startswith(("/", "\\", "results/")) or ".." in Path(path).parts or ":" in path.split("/")[0]
    return None if outside else quote(path)


def table(rows: pd.DataFrame, columns: Sequence[Column], study: str) -> Table:
    """Formats the rows of a table.

    A scaled unit is chosen once a column, so that its numbers compare at a glance, and stands in the head. A measured
    column without a single value is dropped and named in `unmeasured`; in a row that failed, the measured columns give
    way to its status and reason.
    """
    columns = [column for column in columns if column.name in rows or column.low in rows]
    empty = [column for column in columns if column.measured and _is_empty(rows, column)]
    shared = [c for c in columns if c.axis and len(rows) > 1 and rows[c.name].nunique(dropna=False) == 1]
    common = [(column.title, _with_unit(column, rows)) for column in shared]
    kept = [column for column in columns if column not in empty and column not in shared]
    printers, heads = [], []
    for column in kept:
        printer, unit = _printer(column, rows)
        printers.append(printer)
        heads.append(Cell(text=column.title, unit=unit, style=_head_style(column)))
    first = next((i for i, column in enumerate(kept) if column.measured), len(kept))
    printed = []
    for row in rows.to_dict("records"):
        failed = row.get("status", "ok") != "ok"
        cells = [
            _cell(column, printer, row, study)
            for column, printer in zip(kept, printers, strict=True)
            if not (failed and column.measured)
        ]
        if failed and first < len(kept):
            covered = sum(column.measured for column in kept)
            cells.insert(first, Cell(text=_why(row), style="failed", covers=covered))
        printed.append(cells)
    return Table(heads=heads, rows=printed, common=common, unmeasured=[column.title for column in empty])


def _with_unit(column: Column, rows: pd.DataFrame) -> str:
    """What all rows have in a column, with the unit that its head would have named."""
    printer, unit = _printer(column, rows)
    text = printer(rows.iloc[0].to_dict())
    return f"{text}{SPACE}{unit}" if unit and text != MISSING else text


def _why(row: dict) -> str:
    status = STATUS_WORDS.get(row["status"], str(row["status"]))
    return status if is_missing(row.get("reason")) else f"{status}: {plain(row['reason'])}"


def _is_empty(rows: pd.DataFrame, column: Column) -> bool:
    names = [name for name in (column.name, column.low) if name in rows]
    return bool(rows[names].isna().all(axis=None))


def _style(column: Column) -> str:
    return {"text": "", "status": "", "doubts": "doubts", "record": "record"}.get(column.kind, "number")


def _head_style(column: Column) -> str:
    return f"{_style(column)} long".strip() if len(column.title) > 10 else _style(column)


def _cell(column: Column, printer: Callable[[dict], str], row: dict, study: str) -> Cell:
    if column.kind == "record":
        link = record_link(row.get(column.name), study)
        return Cell(text="record" if link else plain(row.get(column.name) or MISSING), style="record", link=link)
    text = printer(row)
    return Cell(text=text, style="missing" if text == MISSING else _style(column))


def _printer(column: Column, rows: pd.DataFrame) -> tuple[Callable[[dict], str], str]:
    """Returns what prints this column's value of a row, and the unit that belongs in the head."""
    simple = {"count": count, "ratio": times, "number": digits, "loss": lambda value: f"{value:.4f}", "p": _probability}
    if column.low:
        scale, unit = unit_for(rows[column.low], column.kind)
        return (
            lambda row: (
                MISSING if is_missing(row.get(column.name)) else span(row.get(column.low), row.get(column.high), scale)
            )
        ), unit
    if column.kind == "doubts":
        return lambda row: "" if is_missing(row.get(column.name)) else str(row[column.name]), ""
    if column.kind in ("text", "printed", "status", "record"):
        words = STATUS_WORDS if column.kind == "status" else {}
        return lambda row: _words(row.get(column.name), words), ""
    if column.kind == "percent":
        return lambda row: _number(row.get(column.name), lambda value: digits(value * 100)), "%"
    if column.kind in simple:
        return lambda row: _number(row.get(column.name), simple[column.kind]), ""
    scale, unit = unit_for(rows[column.name], column.kind)
    return lambda row: _number(row.get(column.name), lambda value: digits(value / scale)), unit


def _words(value: object, words: dict[str, str]) -> str:
    if is_missing(value) or (isinstance(value, float) and value != value):
        return MISSING
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return words.get(str(value), plain(value))


def _probability(value: float) -> str:
    """A p-value: its tail says more of the assumption of normal noise than of what was measured."""
    return f"< {LEAST_P}" if value < LEAST_P else digits(value)


def _number(value: object, show: Callable[[float], str]) -> str:
    return MISSING if is_missing(value) else show(float(value))
