"""The report's part on the study's document: what it claims, and its tables beside those of this study."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from workflow_scripts.lib.claims import STATUS_WORDS
from workflow_scripts.lib.evidence import CANNOT as CANNOT_SAY
from workflow_scripts.lib.evidence import DOES_NOT, HOLDS
from workflow_scripts.lib.page import Column, table
from workflow_scripts.lib.parts import Part, Shown, shown
from workflow_scripts.lib.published_beside import CANNOT, UNLIKE, UNSTATED
from workflow_scripts.lib.quantities import MISSING, digits, is_missing, listing, plural, span, times, unit_for

NOT_STATED, NONE = "not stated", "–"
CONDITIONS = [
    Column(name="device", title="device", axis=True),
    Column(name="condition", title="condition"),
    Column(name="published", title="published", kind="printed"),
    Column(name="ours", title="here", kind="printed"),
    Column(name="verdict", title="the two"),
]


def section(tables: dict[str, pd.DataFrame], hardware: dict[str, str], study: str) -> dict[str, Any] | None:
    """The document's claims, and a part for each published table; None for a study without a document.

    Args:
        tables: `checked_claims`, `published` and `published_conditions`; any may have no rows.
        hardware: names of devices by id.
        study: its name, for links to records.
    """
    claims, beside, conditions = (tables[name] for name in ("checked_claims", "published", "published_conditions"))
    if claims.empty and beside.empty:
        return None
    parts = []
    for (name, title), rows in beside.groupby(["table", "title"], sort=False) if len(beside) else ():
        mine = conditions[(conditions.table == name) & (conditions.title == title)]
        compared = mine[mine.verdict != CANNOT].assign(
            published=lambda found: found.published.where(found.published.notna(), NOT_STATED),
            ours=lambda found: found.ours.where(found.ours.notna(), MISSING),
        )
        sentences = [*_ratios(rows, hardware), *_unlike(mine, hardware)]
        told = shown(compared, CONDITIONS, study, "What is alike and what is not", "published_conditions")
        parts.append(Part(title=str(title), sentences=sentences, figures=[], tables=[_beside(rows, study), *told]))
    told = claims.astype(object).where(claims.notna(), "").to_dict("records")
    return {"claims": told, "counted": _counted(claims) if len(claims) else "", "parts": parts}


def _counted(rows: pd.DataFrame) -> str:
    n = rows.ours.value_counts()
    return (
        f"Held against these measurements, of {plural(len(rows), 'claim')} of the document "
        f"{plural(n.get(HOLDS, 0), 'holds', 'hold')}, {plural(n.get(DOES_NOT, 0), 'does', 'do')} not, and of "
        f"{n.get(CANNOT_SAY, 0):,} nothing can be said."
    )


def _ratios(rows: pd.DataFrame, hardware: dict[str, str]) -> Iterator[str]:
    """A sentence for each device and quantity: how the published numbers compare."""
    known = rows[rows.ratio.notna()]
    if known.empty:
        here = rows.ours.notna().any()
        yield "No number stands on both sides." if here else "Nothing measured here has a counterpart in this table."
    for (device, name), group in known.groupby(["device", "quantity"], sort=False):
        least, most = group.ratio.min(), group.ratio.max()
        which = " to ".join(dict.fromkeys((times(least), times(most))))
        number = "number" if len(group) == 1 else "numbers"
        yield (
            f"{name[0].upper()}{name[1:]}: the published {number} {'is' if len(group) == 1 else 'are'} {which} "
            f"what {hardware.get(device, device)} gave here, in {plural(len(group), 'pair')}."
        )


def _unlike(rows: pd.DataFrame, hardware: dict[str, str]) -> Iterator[str]:
    """What keeps the two from being compared: conditions that differ, those not stated, and reasons."""
    for device, group in rows.groupby("device", sort=False):
        where = hardware.get(device, device)
        differ = group[group.verdict == UNLIKE]
        told = [f"{row.condition} ({row.published} there, {row.ours or MISSING} here)" for row in differ.itertuples()]
        unstated = listing(group[group.verdict == UNSTATED].condition)
        if told:
            yield f"Beside {where}, what differs is {listing(told)}."
        if unstated:
            yield f"The document does not state {unstated}, so nobody can tell whether {where} did the same."
    for row in rows[rows.verdict == CANNOT].itertuples():
        yield f"{row.condition[0].upper()}{row.condition[1:]} cannot be compared: {row.why}"


def _beside(rows: pd.DataFrame, study: str) -> Shown:
    """The long rows as one table: a row a published row and device, some columns a quantity."""
    keys = ["published_row", "device", "our_row"]
    rows = rows.assign(our_row=rows.our_row.fillna(NONE).replace("", NONE))
    printed = rows[keys].drop_duplicates().set_index(keys, drop=False)
    columns = [
        Column(name="published_row", title="published row"),
        Column(name="device", title="device", axis=True),
        *([Column(name="our_row", title="here as", axis=True)] if set(rows.our_row) != {NONE} else []),
    ]
    for place, (name, group) in enumerate(rows.groupby("quantity", sort=False)):
        own = group.set_index(keys)
        for title, values in _texts(str(name), own).items():
            if any(value not in (NONE, NOT_STATED) for value in values):
                printed[f"{place} {title}"] = pd.Series(values, index=own.index)
                columns.append(Column(name=f"{place} {title}", title=title, kind="printed"))
    printed["record"] = rows.drop_duplicates(keys).set_index(keys).record
    columns.append(Column(name="record", title="from", kind="record"))
    made = table(printed.reset_index(drop=True), columns, study)
    return Shown(table=made, caption="Published, and here", source="tables/published.csv", more=0)


def _texts(name: str, rows: pd.DataFrame) -> dict[str, list[str]]:
    """The columns of one quantity, both sides in one unit: published, ours, its interval, published over ours."""
    unit = "" if is_missing(rows.unit.iloc[0]) else str(rows.unit.iloc[0])
    values = [_number(value) for value in (*rows.published, *rows.ours)]
    scale, name_of_unit = (1.0, "") if unit == "text" else unit_for([v for v in values if v is not None], unit)
    head = f"{name} ({name_of_unit})" if name_of_unit else name
    heads = (f"published, {head}", f"here, {head}", "interval", "published over here")
    found: dict[str, list[str]] = {title: [] for title in heads}
    for row in rows.itertuples():
        low, high = _number(row.ours_low), _number(row.ours_high)
        texts = (
            _said(row.published, row.published_status, scale, int(row.significant), NOT_STATED),
            _said(row.ours, row.ours_status, scale, int(row.significant), MISSING),
            NONE if low is None else span(low, high, scale),
            NONE if is_missing(row.ratio) else times(float(row.ratio)),
        )
        for column, text in zip(found.values(), texts, strict=True):
            column.append(text)
    return found


def _said(value: object, status: object, scale: float, significant: int, otherwise: str) -> str:
    """What one side has, or why it has nothing."""
    number = _number(value)
    if number is not None:
        whole = (number / scale).is_integer()
        return f"{number / scale:,.0f}" if whole else digits(number / scale, significant)
    if not is_missing(value):
        return str(value)
    return otherwise if is_missing(status) or status == "ok" else STATUS_WORDS.get(str(status), str(status))


def _number(value: object) -> float | None:
    """A value of a column that holds numbers of some quantities and words of others."""
    try:
        return None if is_missing(value) else float(value)
    except ValueError:
        return None
