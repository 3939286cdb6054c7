"""How the trainings of an experiment judge a claim: changes over seeds, each beside the same level of all else."""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping

import pandas as pd

from workflow_scripts.lib.effects import Contrast, by_seed, contrast
from workflow_scripts.lib.evidence import CANNOT, DOES_NOT, HOLDS, Evidence, Judgement
from workflow_scripts.lib.experiments import BASELINE, OUTCOMES
from workflow_scripts.lib.quantities import listing, percent, plural

CLOSE = 0.25  # a stated change is right within this share of itself
TIMED = ("step_time_s", "token_time_s", "train_s")
Levels = Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """What one level does to one outcome, over seeds, on one device, with the level `among` of the other factor.

    `floor` is how far fresh processes of one cell lie apart there, as a share: no smaller gap in time is one.
    """

    outcome: str
    device: str
    among: str
    found: Contrast
    floor: float = 0.0

    @property
    def share(self) -> float:
        return math.expm1(self.found.log_ratio)

    @property
    def sign(self) -> int:
        """−1 or 1 where the interval and the noise leave no doubt, else 0."""
        low, high = self.found.low, self.found.high
        if low is None or low <= 0 <= high or abs(self.found.log_ratio) <= math.log1p(self.floor):
            return 0
        return 1 if low > 0 else -1


def changes(
    evidence: Evidence, outcome: str, treated: Levels, reference: Levels, among: str, only: str | None = None
) -> list[Change]:
    """Compares runs with the levels `treated` with those that have `reference`, everything else alike.

    Args:
        evidence: the study's tables.
        outcome: one of `OUTCOMES`.
        treated, reference: a level by factor; `baseline` is one.
        among: the other factor, each of whose levels gives a change.
        only: the one level of it that counts.
    """
    table = evidence["outcomes"]
    if table.empty:
        return []
    rows = table[table.status == "ok"]
    levels = pd.DataFrame([json.loads(text) for text in rows.levels], index=rows.index)
    if among not in levels or any(factor not in levels for factor in (*treated, *reference)):
        return []
    spreads = evidence["processes"]
    floors = spreads.groupby("device").spread.max().to_dict() if len(spreads) and outcome in TIMED else {}
    found = []
    for (device, level), group in rows.groupby([rows.device, levels[among]], sort=False):
        if only is not None and level != only:
            continue
        sides = [by_seed(group[_has(levels.loc[group.index], wanted)], outcome) for wanted in (treated, reference)]
        compared = contrast(*sides)
        floor = floors.get(device, 0.0)
        if compared is not None:
            known = 0.0 if pd.isna(floor) else floor
            found.append(Change(outcome=outcome, device=device, among=level, found=compared, floor=known))
    return found


def _has(levels: pd.DataFrame, wanted: Levels) -> pd.Series:
    return pd.Series(True, index=levels.index) & (levels[list(wanted)] == pd.Series(wanted)).all(axis=1)


def by_as_much(found: list[Change], stated: float) -> Judgement:
    """Judges whether changes are what is stated, as a share: within `CLOSE` of it, or their interval has it."""
    if not found:
        return CANNOT, UNTRAINED

    def covers(one: Change) -> bool:
        low, high = one.found.low, one.found.high
        return low is not None and math.expm1(low) <= stated <= math.expm1(high)

    apart = [one for one in found if not covers(one)]
    if all(abs(one.share - stated) <= CLOSE * abs(stated) for one in apart):
        return HOLDS, told(found) + (f", within {percent(CLOSE)} of what is stated" if apart else "")
    return DOES_NOT, told(found)


def no_more_than(found: list[Change], limit: float) -> Judgement:
    """Judges whether changes either way surely are within a share."""
    if not found:
        return CANNOT, UNTRAINED
    reach = math.log1p(limit)
    beyond = [one for one in found if one.found.low is not None and (one.found.low > reach or one.found.high < -reach)]
    open_ones = [one for one in found if one not in beyond and not one.found.within(limit)]
    text = (
        f"{len(found) - len(beyond) - len(open_ones):,} of {plural(len(found), 'comparison')} surely within "
        f"{percent(limit)}, {len(beyond):,} beyond, {len(open_ones):,} undecided: {told(found)}"
    )
    return (DOES_NOT if beyond else CANNOT if open_ones else HOLDS), text


def always(found: list[Change], sign: int) -> Judgement:
    """Judges whether all changes go one way: −1 down, 1 up."""
    if not found:
        return CANNOT, UNTRAINED
    right, wrong = (sum(one.sign == way for one in found) for way in (sign, -sign))
    words = "less" if sign < 0 else "more"
    text = (
        f"{words} in {right:,} of {plural(len(found), 'comparison')}, the other way in {wrong:,}, "
        f"{len(found) - right - wrong:,} undecided: {told(found)}"
    )
    return (DOES_NOT if wrong else HOLDS if right == len(found) else CANNOT), text


def together(*judgements: Judgement) -> Judgement:
    """Joins judgements of the parts of a claim, all of which must hold."""
    verdicts = [verdict for verdict, _ in judgements]
    reasons = dict.fromkeys(why for _, why in judgements)
    return next(v for v in (DOES_NOT, CANNOT, HOLDS) if v in verdicts), "; ".join(reasons)


def told(found: list[Change]) -> str:
    """The changes of each outcome in words: one with its interval, several from the least to the most."""
    texts = []
    for outcome in dict.fromkeys(one.outcome for one in found):
        mine = sorted((one for one in found if one.outcome == outcome), key=lambda one: one.share)
        first, last = mine[0], mine[-1]
        if len(mine) == 1:
            low, high = first.found.low, first.found.high
            interval = "" if low in (None, high) else f" ({signed(math.expm1(low))} to {signed(math.expm1(high))})"
            text = f"{signed(first.share)}{interval}"
        else:
            text = f"{signed(first.share)} ({_where(first)}) to {signed(last.share)} ({_where(last)})"
        texts.append(f"{OUTCOMES[outcome].title} {text} on {listing(dict.fromkeys(one.device for one in mine))}")
    return ", ".join(texts)


def signed(share: float) -> str:
    """A change in per cent with its sign."""
    return f"{'+' if share > 0 else ''}{percent(share)}"


def _where(one: Change) -> str:
    return "alone" if one.among == BASELINE else f"with `{one.among}`"


def synergy(evidence: Evidence, levels: list[str], outcomes: list[str]) -> Judgement:
    """Judges whether levels and those of another factor together give less than the product of each."""
    table = evidence["interactions"]
    rows = table[table.outcome.isin(outcomes)] if len(table) else table
    rows = rows[rows.level_a.isin(levels) | rows.level_b.isin(levels)] if len(rows) else rows
    if rows.empty:
        return CANNOT, "no two changes were run alone, together and not at all"
    below, above = (int((rows.verdict == way).sum()) for way in ("below", "above"))
    seeming = int((rows.additive_deviation < 0).sum())
    nothing = rows.verdict.eq("undecided") & (rows.low > 1 - NOTHING)
    text = (
        f"of {plural(len(rows), 'pair')} on {listing(rows.device.unique())}, {below:,} give less than the product of "
        f"each, {above:,} more, {len(rows) - below - above:,} undecided ({rows.interaction.min():.3f} to "
        f"{rows.interaction.max():.3f} of it); {seeming:,} lie below the sum of percentages"
    )
    return (HOLDS if below == len(rows) else DOES_NOT if above or nothing.any() else CANNOT), text


NOTHING = 0.05  # an interaction surely closer to 1 than this is none
UNTRAINED = "the runs that it compares were not made, or have no such outcome here"
SHRUNK = "the runs here are not as large and as long as the document's"


def baselines(evidence: Evidence) -> Iterator[dict]:
    """The baselines that ended well, as rows."""
    runs = evidence["runs"]
    if len(runs):
        yield from runs[(runs.treatment == BASELINE) & (runs.status == "ok")].to_dict("records")


def as_published(evidence: Evidence, **values: float) -> bool:
    """Whether every baseline has the document's values, so that its numbers can be ours."""
    known = list(baselines(evidence))
    return bool(known) and all(run[name] == value for run in known for name, value in values.items())
