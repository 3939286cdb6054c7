"""A document's tables beside a study's own: row by row what it printed and what was measured here, and what is unlike.

Which table stands beside which is data, `resources/published/beside/{study}.yaml`, a list of `Pairing`s. Published
columns have the names of their normal form (`audit.published`), ours those of the study's tables.
"""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dacite
import pandas as pd
import yaml

from workflow_scripts.lib.audit.claims import Table, pick
from workflow_scripts.lib.audit.findings import words
from workflow_scripts.lib.audit.frames import SPOKEN
from workflow_scripts.lib.comparisons import Estimate, pool
from workflow_scripts.lib.quantities import digits, is_missing, listing, quantity
from workflow_scripts.lib.specs import from_json

BESIDE_COLUMNS = (
    "table title published_row device our_row quantity unit significant published published_status ours ours_low "
    "ours_high ours_status n ratio record"
).split()
CONDITION_COLUMNS = "table title device condition published ours verdict why".split()
ALIKE, UNLIKE, UNSTATED, CANNOT = "alike", "differs", "not stated", "cannot be compared"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantity:
    """What both tables have: its column in each, its title, its unit in ours (`s`, `bytes`, `text`, or none).

    Where only one side has it, the other is left out. `scale` brings the published number, in the base
    unit that it was read in, to ours: 0.01 for per cent to a share. `over` chooses the published row whose number each
    is divided by, for what ours has as ratios. `interval` names two columns of ours. `significant` digits are shown.
    """

    title: str
    ours: str = ""
    published: str = ""
    unit: str = ""
    scale: float = 1.0
    over: dict[str, Any] = dataclasses.field(default_factory=dict)
    interval: tuple[str, ...] = ()
    significant: int = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Condition:
    """Something that should be alike: its column in each table, or in `here` what always holds of ours.

    `where` chooses the rows of ours that it is about: the momentum of SGD is none of AdamW's.
    """

    title: str
    published: str
    ours: str = ""
    here: str = ""
    unit: str = ""
    where: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairing:
    """One published table and the table of ours that it is set beside.

    `rows` and `where` choose rows of theirs and of ours, by values or lists of values. `join` gives for each published
    column that tells rows apart the column of ours, and `words` what a published value is called here. `axes` are
    further columns of ours that tell its rows apart. Several rows of ours for one, such as seeds, are pooled. `melted`
    names columns of ours that become rows: their names stand in `name`, their values in `value`. `cannot` tells what
    cannot be compared at all, and why. Of ours, the levels of each treatment are columns, too: `level_FACTOR`.
    """

    published: str
    ours: str
    title: str
    rows: dict[str, Any] = dataclasses.field(default_factory=dict)
    where: dict[str, Any] = dataclasses.field(default_factory=dict)
    join: dict[str, str] = dataclasses.field(default_factory=dict)
    words: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    axes: tuple[str, ...] = ()
    melted: tuple[str, ...] = ()
    quantities: tuple[Quantity, ...] = ()
    conditions: tuple[Condition, ...] = ()
    cannot: dict[str, str] = dataclasses.field(default_factory=dict)


def read_pairings(path: Path) -> list[Pairing]:
    """Reads a study's pairings.

    Raises:
        ValueError: an entry has a key that nobody reads, lacks one, or has a value of the wrong type.
    """
    entries = yaml.safe_load(path.read_text(encoding="utf-8")) or []
    pairings = []
    for position, entry in enumerate(entries):
        try:
            pairings.append(from_json(Pairing, entry))
        except dacite.DaciteError as fault:
            raise ValueError(f"{path}, entry {position + 1}: {fault}") from None
    return pairings


def set_beside(
    pairing: Pairing, table: Table, tables: dict[str, pd.DataFrame], hardware: dict[str, str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Gives the rows of published.csv and of published_conditions.csv for one pairing.

    Args:
        pairing: what goes beside what.
        table: the published table in normal form.
        tables: the study's tables by name.
        hardware: names of devices by id.

    Raises:
        ValueError: the pairing names a table, or a column of one with rows, that there is not.
    """
    theirs = pick(table.rows, pairing.rows)
    ours = _ours(pairing, tables)
    _check_columns(f"the published table {pairing.published}", theirs, [*pairing.join, *pairing.words])
    rows: list[dict[str, Any]] = []
    conditions: list[dict[str, Any]] = []
    for device, group in ours.groupby("device", sort=False) if len(ours) else [(None, ours)]:
        matched = []
        for row in theirs.to_dict("records"):
            label = ", ".join(_named(column, row[column]) for column in pairing.join) or str(row.get("label", ""))
            mine = _matching(pairing, row, group)
            matched.append(mine)
            for our_row, members in _by_axes(pairing, mine):
                labels = {"published_row": label, "device": device, "our_row": our_row}
                rows += _rows(pairing, row, theirs, members, labels)
        seen = pd.concat(matched) if matched else group
        conditions += _conditions(pairing, theirs, seen, device, hardware)
    reasons = [{"condition": what, "verdict": CANNOT, "why": why} for what, why in pairing.cannot.items()]
    named = {"table": pairing.published, "title": pairing.title}
    return [named | row for row in rows], [named | row for row in conditions + reasons]


def _ours(pairing: Pairing, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Our rows that the pairing is about."""
    if pairing.ours not in tables:
        raise ValueError(f"no table of a study is called {pairing.ours}: {listing(sorted(tables))}")
    found = tables[pairing.ours]
    used = [*pairing.where, *pairing.join.values(), *pairing.axes]
    used += [one.ours for one in (*pairing.quantities, *pairing.conditions) if one.ours]
    used += [column for one in pairing.quantities for column in one.interval]
    used += [column for one in pairing.conditions for column in one.where]
    if found.empty:
        return pd.DataFrame(columns=list(dict.fromkeys(["device", *used])))
    if "device_a" in found:  # a comparison of two devices stands under the faster one
        found = found.assign(device=found.device_a)
    if pairing.melted:
        kept = [column for column in found.columns if column not in (*pairing.melted, "name", "value")]
        found = found.melt(id_vars=kept, value_vars=list(pairing.melted), var_name="name", value_name="value")
    found = _with_levels(found)
    _check_columns(f"the table {pairing.ours}", found, used)
    return pick(found, pairing.where)


def _with_levels(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a column for each factor of their treatments."""
    if "levels" not in rows:
        return rows
    known = [json.loads(text) if isinstance(text, str) else {} for text in rows.levels]
    names = dict.fromkeys(factor for levels in known for factor in levels)
    return rows.assign(**{f"level_{name}": [levels.get(name) for levels in known] for name in names})


def _check_columns(what: str, rows: pd.DataFrame, used: list[str]) -> None:
    absent = [column for column in used if column not in rows.columns]
    if absent:
        raise ValueError(f"{what} has no column {absent[0]}: {listing(sorted(map(str, rows.columns)))}")


def _matching(pairing: Pairing, row: dict[str, Any], ours: pd.DataFrame) -> pd.DataFrame:
    """Our rows that are what the published row is, whatever the case of its words."""
    for column, own in pairing.join.items():
        wanted = _key(pairing.words.get(column, {}).get(_text(row[column]), row[column]))
        ours = ours[pd.Series([_key(value) == wanted for value in ours[own]], index=ours.index, dtype=bool)]
    return ours


def _by_axes(pairing: Pairing, rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Our rows for one published row, apart by the axes; one group without rows where there are none."""
    if rows.empty or not pairing.axes:
        yield "", rows
        return
    for values, members in rows.groupby(list(pairing.axes), sort=False, dropna=False):
        yield ", ".join(_text(value) for value in values), members


def _rows(
    pairing: Pairing, row: dict[str, Any], theirs: pd.DataFrame, ours: pd.DataFrame, names: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    for one in pairing.quantities:
        printed = row.get(one.published)
        if one.over and all(row[column] == value for column, value in one.over.items()):
            continue  # one over itself
        if one.over and not is_missing(printed):
            printed /= float(pick(theirs, one.over)[one.published].iloc[0])
        told = {
            **names,
            "quantity": one.title,
            "unit": one.unit,
            "significant": one.significant,
            "published": None if is_missing(printed) else printed,
            "published_status": row.get("status"),
            "ours_status": ours.status.iloc[0] if len(ours) and "status" in ours else None,
            "n": len(ours) or None,
            "record": ours.record.iloc[0] if len(ours) and "record" in ours else None,
        }
        if one.ours and one.unit == "text":
            yield told | {"ours": " or ".join(_text(value) for value in _values(ours[one.ours])) or None}
            continue
        number = None if is_missing(printed) else float(printed) * one.scale
        found = _pooled(ours, one) if one.ours else None
        if found is not None:
            told |= {"ours": found.value, "ours_low": found.low, "ours_high": found.high, "n": found.n}
            told["ratio"] = number / found.value if number is not None and found.value else None
        yield told | {"published": number}


def _pooled(rows: pd.DataFrame, quantity: Quantity) -> Estimate | None:
    """Our value with its interval; where several rows have none of their own, from the least to the greatest."""
    column = quantity.ours
    found = pool(rows, column)
    if found is not None and found.n == 1 and quantity.interval:
        low, high = (rows[name].dropna() for name in quantity.interval)
        return dataclasses.replace(found, low=low.min() if len(low) else None, high=high.max() if len(high) else None)
    if found is None or found.n == 1 or found.low is not None:
        return found
    return dataclasses.replace(found, low=float(rows[column].min()), high=float(rows[column].max()))


def _conditions(
    pairing: Pairing, theirs: pd.DataFrame, ours: pd.DataFrame, device: Any, hardware: dict[str, str]
) -> Iterator[dict[str, Any]]:
    if ours.empty:
        return
    for one in pairing.conditions:
        assumed = set().union(*(str(text).split(",") for text in theirs.get("assumed", pd.Series(dtype=str)).dropna()))
        stated = None if one.published not in theirs or one.published in assumed else _values(theirs[one.published])
        values = [] if one.here else _values(pick(ours, one.where)[one.ours])
        here = [one.here] if one.here else [hardware.get(value, value) for value in values]
        same = {_key(value) for value in stated or []} == {_key(value) for value in here}
        yield {
            "device": device,
            "condition": one.title,
            "published": _say(stated, one.unit) if stated else None,
            "ours": _say(here, one.unit) if here else None,
            "verdict": UNSTATED if not stated else ALIKE if same else UNLIKE,
        }


def _values(column: pd.Series) -> list[Any]:
    return [value for value in column.drop_duplicates() if not is_missing(value)]


def _say(values: list[Any], unit: str) -> str:
    return listing(quantity(float(value), unit) if unit else _text(value) for value in values)


def _named(column: str, value: Any) -> str:
    """A value that tells rows apart; a number with what it counts."""
    return _text(value) if isinstance(value, str) else f"{SPOKEN.get(column, words(column))} {_text(value)}"


def _text(value: Any) -> str:
    """A value as its table prints it, whole numbers without a point."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{round(value):,}" if float(value).is_integer() else digits(value)


def _key(value: Any) -> Any:
    return str(value).casefold() if isinstance(value, str) else float(value) if not is_missing(value) else None
