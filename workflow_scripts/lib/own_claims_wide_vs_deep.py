"""What the study `wide_vs_deep` says of each claim of its document."""

import pandas as pd

from workflow_scripts.lib.comparisons import THRESHOLDS
from workflow_scripts.lib.convergence import order
from workflow_scripts.lib.estimates import MIN_SAMPLES
from workflow_scripts.lib.evidence import CANNOT, DOES_NOT, HOLDS, Evidence, Judgement
from workflow_scripts.lib.quantities import listing, percent, plural, times
from workflow_scripts.lib.spikes import UNEXPLAINED

ALIKE = 0.10  # two numbers this close, as a share, are called similar or consistent
REPEATABLE = 0.02  # medians of fresh processes this close, as a share, are called repeatable
PAIR = ("wide", "deep")


def timers_are_repeatable(evidence: Evidence) -> Judgement:
    timers = evidence["timers"]
    others = timers[timers.timer == "blocked_autorange"] if len(timers) else timers
    if others.empty:
        return CANNOT, "no cell was timed by blocked_autorange"
    few = others[others.n < MIN_SAMPLES]
    if len(few):
        return DOES_NOT, f"it took fewer than {MIN_SAMPLES:,} samples in {len(few):,} of {plural(len(others), 'cell')}"
    apart = others.between_rounds.max()
    if pd.isna(apart):
        return CANNOT, "no cell was timed in more than one round"
    told = f"its rounds on one cell lie up to {percent(apart)} apart, over {plural(len(others), 'cell')}"
    return (HOLDS if apart <= REPEATABLE else DOES_NOT), told


def timers_agree(evidence: Evidence) -> Judgement:
    timers = evidence["timers"]
    others = timers[timers.timer != "assay"] if len(timers) else timers
    if others.empty:
        return CANNOT, "no cell was timed by another timer"
    others = others.dropna(subset=["agree"])
    if others.empty:
        return CANNOT, "the spread of what the timers gave is not known well enough to compare them"
    disagree = others[others.agree.astype(str) != "True"]
    told = f"of {plural(len(others), 'comparison')} with steps that each end in synchronisation"
    if len(disagree):
        return DOES_NOT, f"{told}, {len(disagree):,} disagree"
    return HOLDS, f"{told}, all agree (memory was not compared)"


def models_are_alike(evidence: Evidence) -> Judgement:
    base = _baseline(evidence["runs"])
    shapes = {name: base[base["name"] == name] for name in PAIR}
    if any(group.empty for group in shapes.values()):
        return CANNOT, "the two models were not both trained"
    wide, deep = (group.iloc[0] for group in shapes.values())
    quantities = {
        "parameters": "n_params", "parameters without embeddings": "n_params_non_embedding",
        "FLOPs per token": "flops_per_token",
    }  # fmt: skip
    ratios = {words: deep[column] / wide[column] for words, column in quantities.items() if pd.notna(deep[column])}
    told = f"deep over wide: {listing(f'{times(ratio)} the {words}' for words, ratio in ratios.items())}"
    return (HOLDS if all(abs(ratio - 1) <= ALIKE for ratio in ratios.values()) else DOES_NOT), told


def speed_up_is_consistent(evidence: Evidence) -> Judgement:
    found = _speed_ups(evidence)
    if found.empty:
        return CANNOT, _ONE_DEVICE
    off = (found["deep"] / found["wide"] - 1).abs()
    return (HOLDS if (off <= ALIKE).all() else DOES_NOT), _pairs(found)


def deep_suffers_on_slow(evidence: Evidence) -> Judgement:
    found = _speed_ups(evidence)
    if found.empty:
        return CANNOT, _ONE_DEVICE
    larger = found["deep"] > found["wide"]
    words = "the slower device loses more on the deep model only where its speed-up is the larger"
    return (HOLDS if larger.all() else DOES_NOT), f"{words}; {_pairs(found)}"


def speed_up_matches_ceilings(evidence: Evidence) -> Judgement:
    rows = evidence["device_comparison"]
    rows = rows[rows.ratio.notna() & rows.ceiling_ratio.notna()] if len(rows) else rows
    if rows.empty:
        return CANNOT, _ONE_DEVICE
    told = [
        f"{row['name']} {times(row['ratio'])} with ceilings {times(row['ceiling_ratio'])} apart"
        for row in rows.to_dict("records")
    ]
    alike = ((rows.ratio / rows.ceiling_ratio - 1).abs() <= ALIKE).all()
    return (HOLDS if alike else DOES_NOT), listing(told)


def both_bounds_occur(evidence: Evidence) -> Judgement:
    cells = evidence["cells"]
    known = cells[cells.predicted_bound.notna()] if len(cells) else cells
    if known.empty:
        return CANNOT, "nothing says what bounds the cells"
    told, both = [], False
    for device, group in known.groupby("device", sort=False):
        counts = group.predicted_bound.value_counts()
        told.append(f"{device}: {listing(f'{n:,} cells bound by {bound}' for bound, n in counts.items())}")
        both |= {"launch", "bandwidth"} <= set(counts.index)
    return (HOLDS if both else DOES_NOT), f"by the cost model, {'; '.join(told)}"


def slow_steps_have_a_cause(evidence: Evidence) -> Judgement:
    rows = evidence["spikes"]
    later = rows[rows.cause != "first step"] if len(rows) else rows
    if later.empty:
        return CANNOT, "no step after the first took much longer than its neighbours"
    by_others = int((later.cause == "other processes").sum())
    unexplained = int((later.cause == UNEXPLAINED).sum())
    told = f"of {plural(len(later), 'event')}, {by_others:,} by other processes, {unexplained:,} unexplained"
    if by_others * 2 > len(later):
        return HOLDS, told
    return (CANNOT if unexplained else DOES_NOT), told


def cells_are_clean(evidence: Evidence) -> Judgement:
    spreads = evidence["processes"].spread.dropna() if len(evidence["processes"]) else pd.Series(dtype=float)
    if spreads.empty:
        return CANNOT, "no cell was repeated in a fresh process"
    told = f"medians of fresh processes differ by up to {percent(spreads.max())} in {plural(len(spreads), 'cell')}"
    return (HOLDS if spreads.max() <= REPEATABLE else DOES_NOT), told


def wide_is_early_and_high(evidence: Evidence) -> Judgement:
    base = evidence["convergence"]
    base = base[base.treatment == "baseline"] if len(base) else base
    if base.empty or not set(PAIR) <= set(base["name"]):
        return CANNOT, "the two models were not both trained"
    told, verdicts = [], set()
    fewest = int(base.groupby(["device", "name"]).seed.nunique().min())
    for device, group in base.groupby("device", sort=False):
        early = order(group, *PAIR, ("settled_low_tokens", "settled_high_tokens"))
        higher = {"earlier": "lower", "later": "higher"}.get(
            order(group, *PAIR, ("final_val_loss", "final_val_loss")), "undecided"
        )
        seeds = int(group.groupby("name").seed.nunique().min())
        when = "at a time that is undecided" if early == "undecided" else early
        where = "at a loss that is undecided" if higher == "undecided" else higher
        told.append(f"on {device} wide converges {when} and ends {where}, from {plural(seeds, 'seed')} each")
        wrong = early == "later" or higher == "lower"
        right = early == "earlier" and higher == "higher"
        verdicts.add(DOES_NOT if wrong else HOLDS if right else CANNOT)
    why = listing(told)
    if "undecided" in why and fewest < THRESHOLDS["seeds"]:
        why += f"; {THRESHOLDS['seeds']:,} seeds would be needed"
    return next(verdict for verdict in (DOES_NOT, CANNOT, HOLDS) if verdict in verdicts), why


_ONE_DEVICE = "both models were not compared on two devices"


def _baseline(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[(runs.treatment == "baseline") & (runs.status == "ok")] if len(runs) else pd.DataFrame({"name": []})


def _pairs(found: pd.DataFrame) -> str:
    told = [f"{a} over {b}: wide {times(row.wide)}, deep {times(row.deep)}" for (a, b), row in found.iterrows()]
    return "; ".join(told)


def _speed_ups(evidence: Evidence) -> pd.DataFrame:
    """The pairs of devices that both models of the pair were compared on, a column a model."""
    comparison = evidence["device_comparison"]
    if comparison.empty:
        return pd.DataFrame(columns=PAIR)
    rows = comparison[comparison.ratio.notna()]
    found = rows.pivot_table(index=["device_a", "device_b"], columns="name", values="ratio")
    return found.dropna() if set(PAIR) <= set(found.columns) else pd.DataFrame(columns=PAIR)


CHECKS = (
    timers_are_repeatable, timers_agree, models_are_alike, speed_up_is_consistent, deep_suffers_on_slow,
    speed_up_matches_ceilings, both_bounds_occur, slow_steps_have_a_cause, cells_are_clean, wide_is_early_and_high,
)  # fmt: skip
