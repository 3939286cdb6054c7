"""Kinds of claim about models, memory and formulas: arithmetic, bounds, ranks, matches, interactions, formats."""

import math
from typing import Any

import pandas as pd

from workflow_scripts.lib.audit.arithmetic import evaluate, parse
from workflow_scripts.lib.audit.claims import Claim, Tables, Verdict, kind, lacking, pick, stated_interval
from workflow_scripts.lib.audit.findings import words
from workflow_scripts.lib.audit.frames import measured, value
from workflow_scripts.lib.audit.matching import INTERACTION, MATCH_HIGH, MATCH_LOW, RATIO_COLUMNS, interactions
from workflow_scripts.lib.audit.wording import percent, scaled

WEIGHT_TOLERANCE = 0.10
# Exponent and explicit mantissa bits. Sources: IEEE 754-2019 for fp32 and fp16, NVIDIA's A100 whitepaper for tf32,
# Google's description of bfloat16 for bf16.
FORMATS = {"fp32": (8, 23), "tf32": (8, 10), "fp16": (5, 10), "bf16": (8, 7)}
BINARY = {"MB": "MiB", "GB": "GiB"}


@kind(
    meaning="A product that is typed out must give the value that is printed.",
    advice="Compute it where the sentence stands.",
)
def check_equation(claim: Claim, tables: Tables) -> Verdict:
    found = evaluate(claim["expression"])
    stated = str(claim["stated"])
    low, high = stated_interval(stated)
    number, _, unit = (
        stated.rpartition(" ") if " " in stated else (stated.rstrip("BGMi"), "", stated.lstrip("~0123456789."))
    )
    numbers = {"value": found, "stated": parse(stated).value}
    in_unit = found / parse(f"1 {unit}").value
    text = f"{claim['expression']} = {in_unit:,.4g} {unit}, {stated} printed"
    if low <= found <= high:
        return Verdict("holds", text, numbers)
    if unit in BINARY:
        low, high = stated_interval(f"{number} {BINARY[unit]}")
        if low <= found <= high:
            return Verdict("holds", f"{text}; it is {BINARY[unit]}", numbers)
    return Verdict("does not hold", text, numbers | {"ratio": found / parse(stated).value})


@kind(
    meaning="A stated value or range must lie within what is known of it, or counted independently.",
    advice="Check an estimator against measured cells and print its error.",
)
def check_bounds(claim: Claim, tables: Tables) -> Verdict:
    if "column" in claim:
        found = measured(pick(tables[claim["table"]].rows, claim.get("rows")), claim["column"])[claim["column"]]
        stated = (float(found.min()), float(found.max()))
    else:
        found = [evaluate(str(expression)) for expression in claim["value"]]
        stated = (min(found), max(found))
    low = evaluate(str(claim["low"])) if "low" in claim else -math.inf
    high = evaluate(str(claim["high"])) if "high" in claim else math.inf
    unit = claim.get("unit", "")
    known = " to ".join(dict.fromkeys(scaled(bound, unit).strip() for bound in (low, high) if math.isfinite(bound)))
    known = (
        known
        if math.isfinite(low) and math.isfinite(high)
        else f"at least {known}"
        if math.isfinite(low)
        else f"at most {known}"
    )
    told = " to ".join(dict.fromkeys(scaled(number, unit).strip() for number in stated))
    holds = low <= stated[0] and stated[1] <= high
    numbers = {"stated_low": stated[0], "stated_high": stated[1], "low": low, "high": high}
    numbers = {name: number for name, number in numbers.items() if math.isfinite(number)}
    return Verdict(
        "holds" if holds else "does not hold", f"{told} stated or implied; {claim['basis']}: {known}", numbers
    )


@kind(
    meaning="What is said not to fit must need more than there is.",
    advice="Fit measured memory, extrapolate, and try one cell beyond the border.",
)
def check_capacity(claim: Claim, tables: Tables) -> Verdict:
    capacity = parse(str(claim["capacity"])).value
    context = {name: evaluate(str(expression)) for name, expression in claim.get("context", {}).items()}
    extra = "".join(f"; {name.replace('_', ' ')} {found:.4g}" for name, found in context.items())
    if "need" in claim:
        needs = {"": evaluate(claim["need"])}
    else:
        rows = pick(tables[claim["table"]].rows, claim["rows"])
        missing = lacking(rows, ["n_params_counted"])
        if missing:
            return Verdict("cannot be said", missing)
        names = dict(zip(rows.label, rows.to_dict("records"), strict=True))
        needs = {
            label: evaluate(claim["need_of_row"], {"n_params": row["n_params_counted"]}) for label, row in names.items()
        }
    fit = [name for name, need in needs.items() if need < capacity]
    told = ", ".join(f"{name} needs {scaled(need, 'B')}".strip() for name, need in needs.items())
    numbers = {"capacity_bytes": capacity, "needs_bytes": list(needs.values()), "n_fit": len(fit)} | context
    text = f"{told}{claim.get('of', '')}; there are {scaled(capacity, 'B')}{extra}"
    return Verdict(claim.get("if_fits", "does not hold") if fit else "holds", text, numbers)


@kind(
    meaning="Models called similar must agree within 10 % in each quantity that is named.",
    advice="Name the quantity that is matched, and print all ratios.",
    MATCH_LOW=MATCH_LOW,
    MATCH_HIGH=MATCH_HIGH,
)
def check_similar(claim: Claim, tables: Tables) -> Verdict:
    rows = tables[claim["table"]].rows
    missing = lacking(rows, claim["columns"])
    if missing:
        return Verdict("cannot be said", missing)
    one, other = (pick(rows, claim[side]).iloc[0] for side in ("from", "to"))
    ratios = {column: float(other[column] / one[column]) for column in claim["columns"]}
    told = ", ".join(f"{RATIO_COLUMNS.get(column, column)} {percent(ratio)}" for column, ratio in ratios.items())
    holds = all(MATCH_LOW <= ratio <= MATCH_HIGH for ratio in ratios.values())
    assumed = ", on an assumed shape" if "n_layer" in str(value(one, "assumed") or "") else ""
    return Verdict("holds" if holds else "does not hold", told + assumed, ratios)


@kind(
    meaning="“Beyond the sum” is a claim about ratios: below 1 is better than independent, within 5 % of 1 is nothing.",
    advice="Test interactions on logarithms, with repeats.",
    INTERACTION=INTERACTION,
)
def check_synergy(claim: Claim, tables: Tables) -> Verdict:
    found, wrong = {}, []
    for column in claim["columns"]:
        for treatment, ratios in interactions(tables[claim["table"]].rows, column).items():
            if treatment in claim["treatments"]:
                found |= {f"{treatment}, {words(column)}, {model}": ratio for model, ratio in ratios.items()}
                wrong += [ratio for ratio in ratios.values() if ratio > 1 - INTERACTION]
    if not found:
        return Verdict("cannot be said", "the table lacks the rows")
    told = ", ".join(f"{name} {ratio:.3f}" for name, ratio in found.items())
    text = f"{len(wrong)} of {len(found)} ratios show no gain: {told}"
    return Verdict("does not hold" if wrong else "holds", text, found)


@kind(
    meaning="Formats differ in exponent (range) and mantissa (precision) bits, and these are known.",
    advice="Name bits: fp32 8 + 23, tf32 8 + 10, fp16 5 + 10, bf16 8 + 7.",
)
def check_formats(claim: Claim, tables: Tables) -> Verdict:
    signs = {"less": lambda a, b: a < b, "same": lambda a, b: a == b, "more": lambda a, b: a > b}
    signs |= {"not less": lambda a, b: a >= b}
    base, told, wrong, numbers = FORMATS["fp32"], [], 0, {}
    for name in claim["formats"]:
        exponent, mantissa = FORMATS[name]
        numbers |= {f"{name}_exponent_bits": exponent, f"{name}_mantissa_bits": mantissa}
        told.append(f"{name} has {exponent} exponent and {mantissa} mantissa bits")
        wrong += "range" in claim and not signs[claim["range"]](exponent, base[0])
        wrong += "precision" in claim and not signs[claim["precision"]](mantissa, base[1])
    return Verdict("does not hold" if wrong else "holds", ", ".join(told) + f"; fp32 {base[0]} and {base[1]}", numbers)


@kind(
    meaning="The weights of a composite rank are the ranges of its terms, not its coefficients.",
    advice="Print effective weights, and the order under a second normalisation with its flips marked.",
    WEIGHT_TOLERANCE=WEIGHT_TOLERANCE,
)
def check_rank(claim: Claim, tables: Tables) -> Verdict:
    rows = tables[claim["table"]].rows
    columns = list(claim["terms"])
    terms = pd.DataFrame({column: _term(rows[column], form) for column, form in claim["terms"].items()})
    scores = terms.sum(axis=1)
    spans = terms.max() - terms.min()
    weights = spans / spans.sum()
    scaled_terms = (rows[columns] - rows[columns].min()) / (rows[columns].max() - rows[columns].min())
    first, second = scores.rank().astype(int), scaled_terms.mean(axis=1).rank().astype(int)
    flips = {rows.label[i]: [int(first[i]), int(second[i])] for i in rows.index if abs(first[i] - second[i]) >= 3}
    reproduced = bool((first == rows["rank"]).all())
    equal = ((weights - 1 / len(columns)).abs() <= WEIGHT_TOLERANCE).all()
    text = (
        "effective weights "
        + ", ".join(f"{words(column)} {100 * weight:.0f} %" for column, weight in weights.items())
        + f"; scores {scores.min():.3f} to {scores.max():.3f} {'give' if reproduced else 'miss'} the printed order; "
        + "with equal ranges "
        + ", ".join(f"{label} {a} → {b}" for label, (a, b) in flips.items())
        + f", last {rows.label[second.idxmax()]}"
    )
    numbers: dict[str, Any] = {f"weight_{column}": float(weight) for column, weight in weights.items()}
    numbers |= {"score_low": scores.min(), "score_high": scores.max(), "reproduced": reproduced, "flips": flips}
    return Verdict("holds" if equal else "does not hold", text, numbers | {"last": rows.label[second.idxmax()]})


def _term(values: pd.Series, form: str) -> pd.Series:
    """One term of a composite score: the value itself, or minus the largest value over it."""
    return values if form == "value" else -values.max() / values
