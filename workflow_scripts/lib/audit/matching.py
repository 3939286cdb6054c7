"""Rules on what is said to be equal or independent: sizes against labels, matched models, interactions as ratios."""

import re
from collections.abc import Iterator

import pandas as pd

from workflow_scripts.lib.audit.comparisons import baseline_of
from workflow_scripts.lib.audit.findings import Seen, rule, words
from workflow_scripts.lib.audit.frames import LOSSES, MEMORIES, all_of, each, first_of, has, measured
from workflow_scripts.lib.audit.wording import count, percent, scaled

LABEL_TOLERANCE = 0.05
MATCH_LOW, MATCH_HIGH = 0.9, 1.1
INTERACTION = 0.05
RATIO_COLUMNS = {
    "n_params": "parameters",
    "n_params_non_embedding": "parameters without embeddings",
    "flops_per_token": "FLOPs per token",
    "activations_bytes": "activations",
}
_SIZE_IN_NAME = re.compile(r"^~?(\d+(?:\.\d+)?)\s*([MB])$", re.IGNORECASE)


@rule(
    severity="error",
    meaning="A model whose count differs from its label by more than 5 % is another model.",
    advice="Count the parameters of the shape; print total, without embeddings, and whether the head is tied.",
    applies=("n_params|n_params_printed", "model"),
    LABEL_TOLERANCE=LABEL_TOLERANCE,
)
def label_against_count(table: pd.DataFrame) -> Iterator[Seen]:
    if not has(table, "n_params_counted"):
        return
    for row in each(measured(table, "n_params_counted")):
        named = _SIZE_IN_NAME.match(str(row.model).strip())
        label = float(named[1]) * {"M": 1e6, "B": 1e9}[named[2].upper()] if named else None
        stated = row.get("n_params_printed")
        for what, said in (("label", label), ("count printed", stated)):
            if said is None or pd.isna(said):
                continue
            ratio = row.n_params_counted / said
            if abs(ratio - 1) > LABEL_TOLERANCE:
                text = (
                    f"{what} {count(said)}, the shape has {count(row.n_params_counted)} ({percent(ratio)}): "
                    f"{scaled(4 * row.n_params_counted, 'B')} of float32 instead of {scaled(4 * said, 'B')}"
                )
                numbers = {"counted": row.n_params_counted, "stated": said, "ratio": ratio}
                yield Seen(row.label, text, numbers | {"bytes": 4 * row.n_params_counted})
                break


@rule(
    severity="warning",
    meaning="Models matched on one quantity differ in others, which must stand beside the match.",
    advice="Name the quantity that is matched, and list every other ratio outside 0.9–1.1.",
    applies=("matched_on",),
    needs=("n_params",),
    MATCH_LOW=MATCH_LOW,
    MATCH_HIGH=MATCH_HIGH,
)
def matched_on(table: pd.DataFrame) -> Iterator[Seen]:
    rows = table.dropna(subset=["n_params"])
    if len(rows) < 2:
        return
    one, other = rows.iloc[0], rows.iloc[1]
    ratios = {column: other[column] / one[column] for column in RATIO_COLUMNS if has(rows, column)}
    outside = {column: ratio for column, ratio in ratios.items() if not MATCH_LOW <= ratio <= MATCH_HIGH}
    matched = str(one.matched_on)
    if outside:
        listed = ", ".join(
            f"{RATIO_COLUMNS[column]} {count(one[column])} / {count(other[column])} ({percent(ratio)})"
            for column, ratio in ratios.items()
        )
        severity = "error" if matched in outside else "warning"
        yield Seen(
            f"{one.label} and {other.label}",
            f"matched on {RATIO_COLUMNS.get(matched, matched)}: {listed}",
            ratios,
            severity,
        )


@rule(
    severity="note",
    meaning="Two effects are independent when their factors multiply, so an interaction is a ratio of ratios.",
    advice="Test on logarithms with repeats; a ratio within the noise of 1 is no interaction, whatever the sum says.",
    applies=("treatment", "model"),
    INTERACTION=INTERACTION,
)
def interaction_ratio(table: pd.DataFrame) -> Iterator[Seen]:
    if table["treatment"].nunique() < 2 or table["model"].nunique() < 2 or has(table, "seed"):
        return
    for column in [*all_of(table, MEMORIES), *all_of(table, ("train_s",)), *filter(None, [first_of(table, LOSSES)])]:
        for treatment, ratios in interactions(table, column).items():
            outside = [ratio for ratio in ratios.values() if abs(ratio - 1) > INTERACTION]
            verdict = (
                "no interaction"
                if not outside
                else "above 1: worse than independent"
                if min(outside) > 1
                else ("below 1: better than independent" if max(outside) < 1 else "on both sides of 1")
            )
            told = ", ".join(f"{model} {ratio:.3f}" for model, ratio in ratios.items())
            yield Seen(f"{treatment}: {words(column)}", f"{told} ({verdict})", dict(ratios))


def interactions(table: pd.DataFrame, column: str) -> dict[str, dict[str, float]]:
    """For each treatment and model (treated × baseline model) / (treatment alone × model alone), 1 if independent.

    The model of the first baseline row is the baseline model.
    """
    rows = measured(table, column, "treatment", "model")
    base = baseline_of(rows)
    if base is None:
        return {}
    wide = rows.pivot_table(index="model", columns="treatment", values=column, sort=False)
    alone, start = wide.loc[base.model], wide[base.treatment]
    found = {}
    for treatment in wide.columns.drop(base.treatment):
        ratio = wide[treatment] * alone[base.treatment] / (alone[treatment] * start)
        found[treatment] = {model: float(value) for model, value in ratio.drop(base.model).dropna().items()}
    return {treatment: ratios for treatment, ratios in found.items() if ratios}


@rule(
    severity="warning",
    meaning="A configuration outside the measured grid is an extrapolation.",
    advice="Add one cell for it to the grid, or mark what is said of it as predicted.",
    applies=("in_grid",),
)
def outside_grid(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "in_grid")):
        if str(row.in_grid).lower() in ("no", "false"):
            yield Seen(row.label, "lies outside the measured grid")
