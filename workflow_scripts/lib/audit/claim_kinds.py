"""Kinds of claim about rows of a table: changes, orders, agreement, evidence."""

import pandas as pd

from workflow_scripts.lib.audit.arithmetic import evaluate, parse
from workflow_scripts.lib.audit.claims import (
    Claim,
    Table,
    Tables,
    Verdict,
    kind,
    lacking,
    pairs,
    pick,
    ratio_interval,
    stated_interval,
)
from workflow_scripts.lib.audit.comparisons import twin_groups
from workflow_scripts.lib.audit.findings import words
from workflow_scripts.lib.audit.frames import LOSSES, each, measured
from workflow_scripts.lib.audit.wording import percent, quantity, signed

# What a word may mean: the largest change, in per cent, that it can stand for.
ADJECTIVES = {
    "no effect": 2.0,
    "nearly identical": 2.0,
    "minor": 5.0,
    "marginal": 5.0,
    "small": 15.0,
}
UNDECIDED = 10.0
MIN_SEEDS = 3
CONSISTENT = 0.10


@kind(
    meaning="A change in per cent must be the one between the rows of the table, within the printed digits.",
    advice="Write the text from the data: compute the percentage where the sentence stands.",
)
def check_change(claim: Claim, tables: Tables) -> Verdict:
    table = tables[claim["table"]]
    found = _changes(claim, table)
    if not found:
        return Verdict("cannot be said", "the table lacks the rows")
    low, high = stated_interval(str(claim["percent"]))
    wrong = {name: change for name, (change, least, most) in found.items() if most < low or least > high}
    told = ", ".join(f"{name}: {percent(1 + change / 100)}" for name, (change, _, _) in found.items())
    numbers = {"stated_percent": parse(str(claim["percent"])).value, "percent": [c for c, _, _ in found.values()]}
    return Verdict("does not hold" if wrong else "holds", f"{claim['percent']} % stated, {told} in the table", numbers)


@kind(
    meaning="An adjective stands for a size of change; each word has its threshold.",
    advice="Choose adjectives by threshold, or print the number instead.",
    UNDECIDED=UNDECIDED,
    **{f"“{word}”, %": limit for word, limit in ADJECTIVES.items()},
)
def check_adjective(claim: Claim, tables: Tables) -> Verdict:
    table = tables[claim["table"]]
    found = _changes(claim, table)
    if not found:
        return Verdict("cannot be said", "the table lacks the rows")
    changes = {name: change for name, (change, _, _) in found.items()}
    limit, worst = ADJECTIVES[claim["word"]], max(changes.values(), key=abs)
    told = ", ".join(f"{name} {signed(change)} %" for name, change in changes.items())
    numbers = {"percent": list(changes.values()), "limit_percent": limit}
    if abs(worst) <= limit:
        return Verdict("holds", told, numbers)
    if claim["column"] in LOSSES and abs(worst) <= UNDECIDED and _seeds(table) < MIN_SEEDS:
        return Verdict("cannot be said", f"{told}: one run each, so these may be noise", numbers)
    return Verdict("does not hold", f"“{claim['word']}” is at most {limit:g} %: {told}", numbers)


def _changes(claim: Claim, table: Table) -> dict[str, tuple[float, float, float]]:
    """Changes in per cent (value, low, high by the printed digits) from one row to the other, by name."""
    rows = measured(table.rows, claim["column"])
    found = {}
    for name, a, b in pairs(rows, claim["from"], claim["to"], claim.get("each", [])):
        ratio, low, high = ratio_interval(table, claim["column"], a, b)
        found[name] = tuple(100 * (number - 1) for number in (ratio, low, high))
    return found


def _seeds(table: Table) -> float:
    return float(table.rows["n_seeds"].min()) if "n_seeds" in table.rows.columns else 1.0


@kind(
    meaning="“Faster in all” needs every pair of the table in that order, and gaps above the noise floor.",
    advice="Name the pairs that are meant, and call gaps below the noise floor undecided.",
)
def check_order(claim: Claim, tables: Tables) -> Verdict:
    table = tables[claim["table"]]
    right, wrong, gaps, time_gaps = [], [], [], []
    for column in claim["columns"]:
        rows = measured(table.rows, column)
        for _, low, high in pairs(rows, claim["lower"], claim["higher"], claim.get("each", [])):
            gaps.append(100 * (high[column] / low[column] - 1))
            time_gaps += [gaps[-1]] if column == "train_s" else []
            told = f"{low.label} {quantity(low[column], column)}, {high.label} {quantity(high[column], column)}"
            (right if low[column] < high[column] else wrong).append(told)
    if not right and not wrong:
        missing = lacking(table.rows, claim["columns"])
        return Verdict("cannot be said", missing or "the table lacks the rows")
    numbers = {"n_right": len(right), "n_wrong": len(wrong), "gaps_percent": gaps}
    if wrong:
        return Verdict(
            "does not hold",
            f"{len(wrong)} of {len(right) + len(wrong)} pairs are the other way: {'; '.join(wrong)}",
            numbers,
        )
    floor = {name: rows.train_s.max() / rows.train_s.min() - 1 for name, rows in twin_groups(table.rows)}
    if time_gaps and floor and min(time_gaps) < (least := 100 * min(floor.values())):
        gap = f"{min(time_gaps):.1f} to {max(time_gaps):.1f} %"
        text = f"in all {len(right)} pairs, but by {gap}, below the noise floor of {least:.0f} %"
        return Verdict("cannot be said", text, numbers | {"noise_floor_percent": least})
    return Verdict("holds", f"in all {len(right)} pairs", numbers)


@kind(
    meaning="“Consistent” values agree with the one that is named, within 10 %.",
    advice="Print the range.",
    CONSISTENT=CONSISTENT,
)
def check_consistent(claim: Claim, tables: Tables) -> Verdict:
    column = claim["column"]
    rows = measured(pick(tables[claim["table"]].rows, claim.get("rows")), column)
    stated = parse(str(claim["stated"])).value
    off = {row.label: row[column] / stated - 1 for row in each(rows)}
    told = ", ".join(
        f"{label} {row:g} ({percent(1 + off[label])})" for label, row in zip(rows.label, rows[column], strict=True)
    )
    holds = all(abs(found) <= CONSISTENT for found in off.values())
    numbers = {"off_percent": [100 * found for found in off.values()]}
    return Verdict("holds" if holds else "does not hold", f"{claim['stated']} stated: {told}", numbers)


@kind(
    meaning="A statement of cause, mechanism, or of rows that were not run needs the measurement that would show it.",
    advice="Measure it, or call it a guess.",
)
def check_evidence(claim: Claim, tables: Tables) -> Verdict:
    table = tables.get(claim["table"])
    rows = pick(table.rows, claim.get("rows")) if table else pd.DataFrame()
    context = {name: evaluate(str(expression)) for name, expression in claim.get("context", {}).items()}
    told = "".join(f"; {name.replace('_', ' ')} {found:.4g}" for name, found in context.items())
    if rows.empty:
        wanted = ", ".join(f"{words(column)} {_either(found)}" for column, found in claim.get("rows", {}).items())
        return Verdict("cannot be said", f"no row with {wanted} was measured{told}", {"n_rows": 0} | context)
    missing = lacking(rows, claim.get("columns", []))
    if missing:
        return Verdict("cannot be said", f"{missing}{told}", {"n_rows": len(rows)} | context)
    for column, least in claim.get("at_least", {}).items():
        if rows[column].min() < least:
            found = rows[column].min()
            text = f"the {words(column)} is {found:g}, {least} are needed{told}"
            return Verdict("cannot be said", text, {column: float(found)} | context)
    return Verdict("holds", f"{len(rows)} rows measured{told}", {"n_rows": len(rows)} | context)


def _either(found: object) -> str:
    return " or ".join(map(str, found)) if isinstance(found, list) else str(found)


@kind(
    meaning="Sums said to be equally accurate must be equally far from the exact result.",
    advice="Add a column with the error against the exact result.",
)
def check_accuracy(claim: Claim, tables: Tables) -> Verdict:
    rows = pick(tables[claim["table"]].rows, claim["rows"])
    errors = (rows.result - rows.exact).abs()
    ratio = errors.max() / errors.min()
    told = ", ".join(f"{label} {error:.4f}" for label, error in zip(rows.label, errors, strict=True))
    numbers = {"errors": list(errors), "ratio": ratio}
    return Verdict("holds" if ratio < 2 else "does not hold", f"errors {told}: {ratio:.0f}-fold", numbers)


@kind(
    meaning="The best trade-off is the largest gain for each per cent of cost.",
    advice="Print the gain per cost of each option.",
)
def check_trade_off(claim: Claim, tables: Tables) -> Verdict:
    rows = pick(tables[claim["table"]].rows, claim.get("rows"))
    base = pick(rows, claim["base"]).iloc[0]
    others = rows.drop(base.name)
    best, numbers = [], {}
    for cost in claim["costs"]:
        gain = (1 - others[claim["gain"]] / base[claim["gain"]]) / (others[cost] / base[cost] - 1)
        numbers |= {
            f"{claim['gain']} per {cost}, {model}": float(found)
            for model, found in zip(others.model, gain, strict=True)
        }
        best.append(others.loc[gain.idxmax()].model)
    told = ", ".join(f"{name} {found:.2f}" for name, found in numbers.items())
    return Verdict("holds" if set(best) == {claim["best"]} else "does not hold", told, numbers)
