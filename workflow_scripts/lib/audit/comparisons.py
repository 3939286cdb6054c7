"""Rules on comparisons: like with like, at equal tokens, and only above the noise."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from workflow_scripts.lib.audit.findings import Seen, has_any, rule
from workflow_scripts.lib.audit.frames import LOSSES, Row, alike, each, first_of, has, measured, value
from workflow_scripts.lib.audit.treatments import CHANGED_BY_TREATMENT
from workflow_scripts.lib.audit.wording import count, percent, scaled, seconds, times
from workflow_scripts.lib.comparisons import THRESHOLDS

MIN_SEEDS = 3
MANY_PASSES = 5.0
RISEN = THRESHOLDS["settled"]
NOISE_NOTABLE = 0.05
TOKENS_EQUAL = 0.01
BETTER_BY = 0.10
BASELINES = ("none", "baseline", "")


def baseline_of(rows: pd.DataFrame) -> pd.Series | None:
    """The row of a group whose treatment is called none or baseline."""
    found = rows[rows.treatment.astype(str).str.lower().isin(BASELINES)]
    return None if found.empty else found.iloc[0]


@rule(
    severity="error",
    meaning="Runs over different numbers of tokens did different work; their times and losses do not compare.",
    advice="Compare at equal tokens, at equal time, or by the time to a loss; give tokens per second beside it.",
    applies=("train_s", "treatment|model", "|".join(LOSSES)),
    needs=("n_tokens",),
    TOKENS_EQUAL=TOKENS_EQUAL,
)
def unequal_tokens(table: pd.DataFrame) -> Iterator[Seen]:
    rows = measured(table, "n_tokens", "train_s")
    for reference, row in _against_reference(rows):
        ratio = row.n_tokens / reference.n_tokens
        if abs(ratio - 1) > TOKENS_EQUAL:
            rates = reference.n_tokens / reference.train_s, row.n_tokens / row.train_s
            text = (
                f"{count(row.n_tokens)} tokens against {count(reference.n_tokens)} of {reference.label}: time "
                f"{percent(row.train_s / reference.train_s)}, time per token {percent(rates[0] / rates[1])} "
                f"({scaled(rates[0], 'tokens/s')} → {scaled(rates[1], 'tokens/s')})"
            )
            numbers = {"tokens_ratio": ratio, "time_ratio": row.train_s / reference.train_s}
            numbers |= {"time_per_token_ratio": rates[0] / rates[1], "tokens_per_s": rates[1]}
            numbers |= {"reference_tokens_per_s": rates[0], "n_tokens": row.n_tokens}
            yield Seen(row.label, text, numbers)


def _against_reference(rows: pd.DataFrame) -> Iterator[tuple[pd.Series, Row]]:
    """Pairs (reference, row): treatments against the model's baseline or most usual batch, models against the first.

    Without a baseline, a row is compared with the row of equal model that shares the optimizer and precision.
    """
    if not has(rows, "treatment"):
        yield from ((rows.iloc[0], row) for row in each(rows.iloc[1:]))
        return
    by = [column for column in ("device", "model", "name", "seed") if has(rows, column)]
    for _, group in rows.groupby(by, sort=False, dropna=False) if by else [((), rows)]:
        reference = baseline_of(group)
        if reference is not None:
            yield from ((reference, row) for row in each(group) if row.index != reference.name)
            continue
        usual = group.n_tokens.mode().iloc[0]
        for row in each(group[group.n_tokens != usual]):
            same = group[(group.n_tokens == usual)]
            for column in ("optimizer", "precision", "accumulation"):
                if has(group, column):
                    same = same[same[column] == row[column]]
            if len(same):
                yield same.iloc[0], row
    baselines = rows[rows.treatment.astype(str).str.lower().isin(BASELINES)]
    if "model" in rows.columns and len(baselines) > 1 and baselines.model.nunique() == len(baselines):
        yield from ((baselines.iloc[0], row) for row in each(baselines.iloc[1:]))


@rule(
    severity="error",
    meaning="A loss without its split may be one training batch's.",
    advice="Name split, step and tokens evaluated beside every loss; rank by validation loss on fixed windows.",
    applies=("loss",),
)
def split_unnamed(table: pd.DataFrame) -> Iterator[Seen]:
    if not has(table, "loss_split"):
        yield Seen(
            "all rows", "the loss has no split, no number of tokens evaluated, and no time axis", {"n_rows": len(table)}
        )


@rule(
    severity="warning",
    meaning="After more than five passes over a text its training loss measures memory, not quality.",
    advice="Rank by validation loss, and give the step at which it was best.",
    applies=("n_tokens", "corpus_train_tokens"),
    MANY_PASSES=MANY_PASSES,
)
def many_passes(table: pd.DataFrame) -> Iterator[Seen]:
    rows = measured(table, "n_tokens", "corpus_train_tokens")
    passes = rows.n_tokens / rows.corpus_train_tokens
    if has_any(table, "final_val_loss|best_val_loss") or not (passes > MANY_PASSES).any():
        return
    first = passes.iloc[0]
    text = f"{passes.min():.1f} to {passes.max():.1f} passes over the text ({first:.1f} in {rows.iloc[0].label})"
    yield Seen("all rows", text, {"passes_low": passes.min(), "passes_high": passes.max(), "passes_first": first})


@rule(
    severity="warning",
    meaning="A validation loss that rises again tells of a text learnt by heart, or of steps too large.",
    advice="Keep the weights of the best step, train for fewer steps or on more text; compare the best losses, too.",
    applies=("best_val_loss",),
    needs=("final_val_loss",),
    RISEN=RISEN,
)
def past_its_best(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "best_val_loss", "final_val_loss")):
        ratio = row.final_val_loss / row.best_val_loss
        if ratio > 1 + RISEN:
            step, seen, text_tokens = (
                value(row, name) for name in ("best_val_step", "n_tokens", "corpus_train_tokens")
            )
            text = f"validation loss {row.final_val_loss:.3f} at the end, {percent(ratio)} on its best, "
            text += f"{row.best_val_loss:.3f}" + (f" at step {step:,.0f}" if step else "")
            text += f", after {seen / text_tokens:,.1f} passes over the text" if seen and text_tokens else ""
            numbers = {"ratio": ratio, "best_val_loss": row.best_val_loss, "final_val_loss": row.final_val_loss}
            yield Seen(row.label, text, numbers)


@rule(
    severity="warning",
    meaning="With one or two seeds a difference of losses has no noise to be judged by.",
    advice="Run at least three seeds of the rows that are ranked, and rank only gaps above their spread.",
    applies=("|".join(LOSSES),),
    MIN_SEEDS=MIN_SEEDS,
)
def few_seeds(table: pd.DataFrame) -> Iterator[Seen]:
    if has(table, "seed"):
        by = [column for column in ("device", "name", "model", "treatment") if has(table, column)]
        seeds = table.groupby(by, dropna=False).seed.nunique() if by else pd.Series([table.seed.nunique()])
        if seeds.min() < MIN_SEEDS:
            least = int(seeds.min())
            yield Seen("all rows", f"as few as {least} of {MIN_SEEDS} seeds", {"n_seeds": least}, "note")
    elif has(table, "n_seeds"):
        if table.n_seeds.min() < MIN_SEEDS:
            yield Seen(
                "all rows",
                f"n = {table.n_seeds.min():.0f} run a configuration: spread unknown",
                {"n_seeds": int(table.n_seeds.min())},
            )
    else:
        yield Seen("all rows", "cannot be checked: the number of seeds is not said", {}, "note")


@rule(
    severity="error",
    meaning="Rows that did the same work and differ in time give the noise floor; smaller gaps are not effects.",
    advice="Repeat cells in fresh processes, print the spread, and call gaps below it undecided.",
    applies=("treatment", "train_s", "|".join(LOSSES)),
    NOISE_NOTABLE=NOISE_NOTABLE,
)
def noise_floor(table: pd.DataFrame) -> Iterator[Seen]:
    for model, twins in twin_groups(table):
        ratio, cv = twins.train_s.max() / twins.train_s.min(), twins.train_s.std() / twins.train_s.mean()
        if ratio - 1 > NOISE_NOTABLE:
            text = (
                f"{len(twins)} rows with one and the same loss took {seconds(twins.train_s.min())} to "
                f"{seconds(twins.train_s.max())}: {times(ratio)}, CV {100 * cv:.1f} %"
            )
            yield Seen(model, text, {"ratio": ratio, "cv": cv, "n_rows": len(twins)})


def twin_groups(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Groups of three and more rows whose equal losses say that they did the same work."""
    loss = first_of(table, LOSSES)
    if loss is None or not has(table, "train_s", "treatment"):
        return
    for group in alike(measured(table, loss, "train_s"), CHANGED_BY_TREATMENT):
        for _, twins in group.groupby(loss, sort=False):
            if len(twins) >= 3:
                yield str(value(twins.iloc[0], "model") or value(twins.iloc[0], "name")), twins


@rule(
    severity="warning",
    meaning="Without a repeated cell the noise floor is unknown, and no gap can be ranked.",
    advice="Measure a few cells again in fresh processes, spread over the sitting.",
    applies=("train_s|step_time_s|step_time_mean_s|speedup",),
)
def no_repeats(table: pd.DataFrame) -> Iterator[Seen]:
    repeated = any(has(table, column) and table[column].nunique() > 1 for column in ("process", "seed"))
    if not (repeated or has_any(table, "spread|n_repeats|noise_floor")):
        yield Seen(
            "all rows", "no configuration was measured twice: the noise floor is unknown", {"n_rows": len(table)}
        )


@rule(
    severity="warning",
    meaning="Rows of another sitting or machine differ by more than their treatment.",
    advice="Repeat one anchor cell in every sitting; do not rank where it moved by more than 10 %.",
    applies=("sitting",),
)
def sittings_mixed(table: pd.DataFrame) -> Iterator[Seen]:
    rows = measured(table, "sitting")
    if not len(rows) or has(table, "anchor_s"):
        return
    names = list(dict.fromkeys(rows.sitting))
    if len(names) > 1:
        usual = rows.sitting.mode().iloc[0]
        others = list(dict.fromkeys(rows[rows.sitting != usual].get("treatment", rows.label)))
        text = f"{', '.join(map(str, others))}: {(rows.sitting != usual).sum()} rows of another sitting, with no anchor"
        yield Seen("all rows", text, {"n_sittings": len(names)})
    elif "different" in str(names[0]):
        yield Seen("all rows", "rows come from different sittings, which ones is not said, and there is no anchor")


@rule(
    severity="error",
    meaning="The effect of a change needs the row without it.",
    advice="Measure the baseline under the same conditions as everything that is compared with it.",
    applies=("baseline",),
)
def baseline_missing(table: pd.DataFrame) -> Iterator[Seen]:
    for stated in measured(table, "baseline").baseline.unique():
        wanted = dict(part.split("=") for part in stated.split(";"))
        match = np.logical_and.reduce(
            [table[column].astype(float) == float(number) for column, number in wanted.items()]
        )
        if not match.any():
            yield Seen(
                "all rows",
                f"no row has the stated baseline ({stated.replace(';', ', ')})",
                {"n_rows": int(match.sum())},
            )


@rule(
    severity="warning",
    meaning="Models measured at different contexts or batches cannot be compared as models.",
    advice="Keep every other axis equal; find the largest batch and context at which all models fit.",
    applies=("model", "sequence_length", "batch_size", "mode|treatment"),
)
def confounded_axes(table: pd.DataFrame) -> Iterator[Seen]:
    if has(table, "treatment"):
        return
    by_model = table.dropna(subset=["model"]).groupby("model", sort=False)
    settings = {
        model: frozenset(map(tuple, rows[["sequence_length", "batch_size"]].dropna().to_numpy()))
        for model, rows in by_model
    }
    settings = {model: found for model, found in settings.items() if found}
    if len(settings) > 1 and not frozenset.intersection(*settings.values()):
        told = "; ".join(
            f"{model} " + ", ".join(f"{t:.0f} × {b:.0f}" for t, b in sorted(found)) for model, found in settings.items()
        )
        yield Seen("all rows", f"no context × batch is common to all models: {told}", {"n_models": len(settings)})


@rule(
    severity="warning",
    meaning="A loss below another device's by more than 0.1 nats at equal work is a fault before it is a success.",
    advice="Run the causality probe and the step-0 comparison on that device.",
    applies=("device", "treatment", "final_val_loss"),
    BETTER_BY=BETTER_BY,
)
def too_good(table: pd.DataFrame) -> Iterator[Seen]:
    for group in alike(measured(table, "final_val_loss"), ("device",)):
        best, rest = group.final_val_loss.min(), group.final_val_loss.nsmallest(2).iloc[-1]
        if rest - best > BETTER_BY:
            row = group.loc[group.final_val_loss.idxmin()]
            yield Seen(
                row.label, f"validation loss {best:.3f}, next device {rest:.3f}", {"loss": best, "other_loss": rest}
            )
