"""The report's part on experiments: what each treatment does, which interact, how they rank, and what nothing beats."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from workflow_scripts.lib.effects import OTHER_WORK
from workflow_scripts.lib.experiments import BASELINE, OUTCOMES, TO_LOSS, changed, levels_of
from workflow_scripts.lib.page import Column, table
from workflow_scripts.lib.quantities import count, digits, is_missing, listing, percent, plural, quantity, span, times

NAMES = ("outcomes", "treatment_effects", "interactions", "ranks", "pareto", "allocations")
TOLD = ("token_time_s", "peak_bytes", "loss_at_tokens", "loss_at_seconds", "train_loss_noise")
MOST_NAMED = 4
WHO = [Column(name="device", title="device", axis=True), Column(name="name", title="model", axis=True)]
EFFECTS = [
    *WHO,
    Column(name="treatment", title="treatment"),
    Column(name="title", title="outcome"),
    Column(name="ratio", title="÷ baseline", kind="ratio"),
    Column(name="ratio", title="95 % interval", kind="number", low="low", high="high"),
    Column(name="at_least", title="at least", kind="ratio", measured=True),
    Column(name="reached", title="reached the loss", measured=True),
    Column(name="p_holm", title="p, Holm", kind="p"),
    Column(name="verdict", title="verdict"),
    Column(name="noise_floor", title="noise floor", kind="percent"),
    Column(name="n_seeds", title="seeds", kind="count", axis=True),
    Column(name="more", title="more seeds to decide"),
    Column(name="record", title="from", kind="record"),
]
INTERACTIONS = [
    *WHO,
    Column(name="level_a", title="change"),
    Column(name="level_b", title="with"),
    Column(name="title", title="outcome"),
    Column(name="interaction", title="interaction", kind="ratio"),
    Column(name="interaction", title="95 % interval", kind="number", low="low", high="high"),
    Column(name="p_holm", title="p, Holm", kind="p"),
    Column(name="verdict", title="than the product"),
    Column(name="change_a", title="first alone", kind="percent"),
    Column(name="change_b", title="second alone", kind="percent"),
    Column(name="change_both", title="both", kind="percent"),
    Column(name="additive_deviation", title="off additive", kind="percent"),
    Column(name="n_seeds", title="seeds", kind="count", axis=True),
]
RANKS = [
    *WHO,
    Column(name="treatment", title="treatment"),
    Column(name="rank", title="rank", kind="count"),
    Column(name="seed_ranks", title="of single seeds"),
    Column(name="minmax_rank", title="rank by equal reach", kind="count"),
    Column(name="order", title="order"),
    Column(name="score", title="score", kind="number"),
    Column(name="loss", title="loss", kind="loss"),
    Column(name="time_s", title="training", kind="s"),
    Column(name="memory_bytes", title="peak memory", kind="bytes"),
]
ALLOCATIONS = [
    *WHO,
    Column(name="treatment", title="treatment"),
    Column(name="allocations", title="allocations a step", kind="count", measured=True),
    Column(name="allocations_ratio", title="÷ baseline", kind="ratio", measured=True),
    Column(name="bytes", title="bytes a step", kind="bytes", measured=True),
    Column(name="bytes_ratio", title="÷ baseline", kind="ratio", measured=True),
    Column(name="peak_heap_bytes", title="peak of the heap", kind="bytes", measured=True),
    Column(name="peak_ratio", title="÷ baseline", kind="ratio", measured=True),
    Column(name="record", title="from", kind="record"),
]


def section(given: dict[str, pd.DataFrame], study: str) -> dict[str, Any] | None:
    """Sentences and tables, or None where nothing was compared with a baseline.

    Args:
        given: the tables by name.
        study: its name, for links to records.
    """
    runs = given.get("runs", pd.DataFrame())
    given = {name: given.get(name, pd.DataFrame()) for name in NAMES}
    effects = given["treatment_effects"]
    if effects.empty:
        return None
    crossed, ranks = given["interactions"], given["ranks"]
    return {
        "method": _method(given["outcomes"], runs),
        "effects": [
            line for key, rows in effects.groupby(["device", "name"], sort=False) for line in _effects(key, rows)
        ],
        "undecided": _undecided(effects),
        "effects_table": table(_readable(effects), EFFECTS, study),
        "interactions": _interactions(crossed) if len(crossed) else [],
        "interactions_table": table(_readable(crossed), INTERACTIONS, study) if len(crossed) else None,
        "ranks": _ranks(ranks) if len(ranks) else [],
        "ranks_table": table(_readable_ranks(ranks), RANKS, study) if len(ranks) else None,
        "pareto": _pareto(given["pareto"]) if len(given["pareto"]) else [],
        "allocations": list(_allocations(given["allocations"])),
        "allocations_table": table(given["allocations"], ALLOCATIONS, study) if len(given["allocations"]) else None,
    }


def _method(outcomes: pd.DataFrame, runs: pd.DataFrame) -> list[str]:
    margins: dict[float, list[str]] = {}
    for one in OUTCOMES.values():
        margins.setdefault(one.margin, []).append(one.title)
    lines = [
        "Every treatment is compared with the baseline of the same model on the same device, as a ratio: each run with "
        "the baseline of its own seed, by Student's t on logarithms. Better and worse need a difference that stands "
        "after Holm's correction for all treatments of that outcome on that device; same means that two one-sided "
        "tests place it within "
        + listing(f"{percent(margin)} ({listing(titles)})" for margin, titles in margins.items())
        + " of the baseline; all else is undecided."
    ]
    for device, rows in outcomes.groupby("device", sort=False):
        first = rows.iloc[0]
        models = rows.drop_duplicates("name").to_dict("records")
        seconds = [f"{quantity(row['equal_s'], 's')} for {row['name']}" for row in models if row["equal_s"] > 0]
        thresholds = [f"{row['threshold_loss']:.3f} for {row['name']}" for row in models if row["threshold_loss"] > 0]
        lines.append(
            f"On {device}, equal tokens are {quantity(first.equal_tokens, 'tokens')}, equal seconds of training are "
            f"{listing(seconds) or 'not known'}, and memory is the peak "
            + ("allocated." if first.memory_kind == "allocated" else "of the process.")
            + (f" The loss to reach is {listing(thresholds)}." if thresholds else "")
            + _cards(runs[runs.device == device] if "card" in runs else runs.head(0))
        )
    return lines


def _cards(runs: pd.DataFrame) -> str:
    """Where runs of one device came from several equal cards: how many, and how many comparisons go across them."""
    runs = runs[runs.card.notna()] if len(runs) else runs
    if runs.empty or runs.card.nunique() < 2:
        return ""
    keys = ["name", "seed"]
    baseline = runs[runs.treatment == BASELINE].set_index(keys).card.rename("card_of_baseline")
    others = runs[runs.treatment != BASELINE].join(baseline, on=keys)
    across = int((others.card != others.card_of_baseline).sum())
    return (
        f" The runs were made on {runs.card.nunique()} equal cards, each run on one; {across} of "
        f"{plural(len(others), 'run')} {'stands' if across == 1 else 'stand'} on another card than the baseline of "
        "its comparison."
    )


def _effects(key: tuple[str, str], rows: pd.DataFrame) -> list[str]:
    """A sentence for each outcome on the changes made alone: which give less, more, the same, with the ratios."""
    alone = [len(changed(levels_of(row))) == 1 for row in rows.to_dict("records")]
    rows, lines = rows[alone] if any(alone) else rows, []
    for outcome in TOLD:
        found = rows[rows.outcome == outcome]
        parts = []
        for verdict, words in (("better", "less"), ("worse", "more"), ("same", "the same")):
            chosen = found[found.verdict == verdict].sort_values("ratio", ascending=verdict != "worse")
            named = [_named(row) for row in chosen.head(MOST_NAMED).to_dict("records")]
            more = f" and {len(chosen) - MOST_NAMED} more" if len(chosen) > MOST_NAMED else ""
            if named:
                parts.append(f"{words} with {listing(named) if not more else ', '.join(named) + more}")
        open_ones = int((found.verdict == "undecided").sum())
        if open_ones:
            parts.append(f"undecided for {plural(open_ones, 'treatment')}")
        if parts:
            lines.append(f"{OUTCOMES[outcome].title.capitalize()} of {key[1]} on {key[0]}: {'; '.join(parts)}.")
    unreached = rows[rows.outcome.eq(TO_LOSS[0]) & (rows.n_reached < rows.n_runs)]
    if len(unreached):
        never = [
            f"`{row.treatment}` ({row.n_reached:.0f} of {row.n_runs:.0f} runs did)" for row in unreached.itertuples()
        ]
        more = f" and {len(never) - MOST_NAMED} more" if len(never) > MOST_NAMED else ""
        named = ", ".join(never[:MOST_NAMED]) + more if more else listing(never)
        lines.append(f"Not every run of these reached the loss that the baseline of {key[1]} on {key[0]} did: {named}.")
    return lines


def _named(row: dict) -> str:
    exact = is_missing(row["low"]) or digits(row["low"]) == digits(row["high"])
    interval = "" if exact else f" ({span(row['low'], row['high'])})"
    return f"`{row['treatment']}` {times(row['ratio'])}{interval}"


def _undecided(effects: pd.DataFrame) -> str:
    unlike = effects.verdict == OTHER_WORK
    n_unlike, effects = int(unlike.sum()), effects[~unlike]
    left = effects[(effects.verdict == "undecided") & effects.p.notna()]
    known = left.more_seeds.dropna()
    single = effects[effects.p.isna() & effects.ratio.notna()]
    decided = len(effects) - len(left) - len(single)
    text = f"{plural(decided, 'comparison')} of {len(effects)} {'is' if decided == 1 else 'are'} decided."
    if len(known):
        text += (
            f" Of the others, {len(known)} would be, with a power of 80 %, by {known.min():.0f} to {known.max():.0f} "
            "more seeds, if effect and noise are what they seem, before any correction."
        )
    if len(single):
        text += f" {plural(len(single), 'has', 'have')} one seed only, which decides nothing."
    if n_unlike:
        text += f" {plural(n_unlike, 'more is', 'more are')} not judged: those runs saw other numbers of tokens than "
        text += "the baseline's, and one that ends sooner may only have done less."
    return text


def _interactions(crossed: pd.DataFrame) -> list[str]:
    lines = []
    for outcome in ("token_time_s", "peak_bytes", "loss_at_tokens"):
        rows = crossed[crossed.outcome == outcome]
        sure = rows[rows.verdict != "undecided"].copy()
        if rows.empty:
            continue
        order = sure.interaction.map(lambda ratio: -abs(1 - ratio)).sort_values(kind="stable").index
        named = [
            f"`{row.level_a}` with `{row.level_b}` {times(row.interaction)} ({span(row.low, row.high)})"
            for row in sure.loc[order].head(MOST_NAMED).itertuples()
        ]
        text = (
            f"{OUTCOMES[outcome].title.capitalize()}: of {plural(len(rows), 'pair')}, "
            f"{plural(len(sure), 'surely differs', 'surely differ')} from "
        )
        lines.append(f"{text}the product of what each does alone" + (f", most {listing(named)}." if named else "."))
    return lines


def _ranks(ranks: pd.DataFrame) -> list[str]:
    lines = []
    for device, rows in ranks.groupby("device", sort=False):
        first, fair = rows.iloc[0], rows.loc[rows.minmax_rank.idxmin()]
        moved = int((rows.moved != 0).sum())
        lines.append(
            f"On {device}, the score (loss − longest time ÷ time − most memory ÷ memory, the least is best) puts "
            f"`{first.treatment}` of {first['name']} first. It calls its terms equal; by how far they reach among "
            f"these runs, loss weighs {percent(first.weight_loss)}, time {percent(first.weight_time)} and memory "
            f"{percent(first.weight_memory)}. With each term scaled to the same reach, `{fair.treatment}` of "
            f"{fair['name']} is first, and {moved} of {len(rows)} change their place."
        )
    return lines


def _pareto(pareto: pd.DataFrame) -> list[str]:
    lines = []
    for device, rows in pareto.groupby("device", sort=False):
        front = [f"`{row.treatment}` of {row.name_}" for row in rows[rows.front == "front"]
                 .rename(columns={"name": "name_"}).itertuples()]  # fmt: skip
        beaten, left = (int((rows.front == kind).sum()) for kind in ("beaten", "undecided"))
        lines.append(
            f"On {device}, over time, memory and loss nothing beats {listing(front) or 'any treatment for sure'}; "
            f"{plural(beaten, 'treatment')} {'is' if beaten == 1 else 'are'} beaten, and {left} undecided."
        )
    return lines


def _allocations(rows: pd.DataFrame) -> Iterator[str]:
    """What a step of the baseline allocates, and which treatments change that most; or why nothing was counted."""
    for (device, name), group in rows.groupby(["device", "name"], sort=False) if len(rows) else ():
        counted = group[group.status == "ok"]
        if counted.empty:
            yield f"Allocations of {name} on {device} were not counted: {group.reason.iloc[0]}."
            continue
        first = counted.iloc[0]
        text = (
            f"On {device}, a step of {name} calls for memory {count(first.allocations)} times and for "
            f"{quantity(first.bytes, 'bytes')} with `{first.treatment}`, as memray {first.memray} counted "
            f"{plural(int(first.n_steps), 'step')} in a process of its own; the heap held "
            f"{quantity(first.peak_heap_bytes, 'bytes')} at most."
        )
        others = counted[counted.treatment != BASELINE]
        if len(others) and first.treatment == BASELINE:
            often, held = (others.loc[others[f"{what}_ratio"].idxmax()] for what in ("allocations", "peak"))
            text += (
                f" Most calls come with `{often.treatment}`, {times(often.allocations_ratio)} as many, and the heap "
                f"holds most with `{held.treatment}`, {times(held.peak_ratio)} as much."
            )
        yield text


def _readable(rows: pd.DataFrame) -> pd.DataFrame:
    shown = rows.assign(title=[OUTCOMES[outcome].title for outcome in rows.outcome])
    if "more_seeds" not in rows:
        return shown
    open_ones = (rows.verdict == "undecided") & rows.noise.notna()
    more = [
        None if not left else "many" if pd.isna(n) else f"{n:.0f}"
        for left, n in zip(open_ones, rows.more_seeds, strict=True)
    ]
    reached = [
        None if pd.isna(row.n_reached) else f"{row.n_reached:.0f} of {row.n_runs:.0f}" for row in rows.itertuples()
    ]
    return shown.assign(more=pd.Series(more, index=rows.index, dtype=object), reached=reached)


def _readable_ranks(ranks: pd.DataFrame) -> pd.DataFrame:
    seeds = [
        None if pd.isna(row.best_rank) else f"{row.best_rank:.0f}–{row.worst_rank:.0f}" for row in ranks.itertuples()
    ]
    order = [
        "same place" if moved == 0 else f"{'up' if moved > 0 else 'down'} {digits(abs(moved), 1)}"
        for moved in ranks.moved
    ]
    return ranks.assign(seed_ranks=seeds, order=order)
