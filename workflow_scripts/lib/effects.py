"""What a treatment does against the baseline of the same model on the same device, as ratios over seeds.

Ratios are means of logarithms. Where two or more seeds are shared, each run is compared with the baseline of its own
seed, with Student's t over the differences (n − 1 degrees of freedom); else the two groups are, with Welch's t.
Verdicts are held against Holm's correction; its family is every treatment of every model for one outcome on one device.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy import special
from statsmodels.stats.multitest import multipletests

from workflow_scripts.lib.audit.comparisons import TOKENS_EQUAL
from workflow_scripts.lib.experiments import BASELINE, OUTCOMES, TO_LOSS
from workflow_scripts.lib.power import ALPHA, detectable, seeds_to_decide

IDENTITY = ["device", "name", "treatment", "levels"]
PER_RUN = ("step_time_s", "train_s", "final_val_loss")  # of as many tokens as a step or the run has, see `_tokens`
OTHER_WORK = "other work"
_EXACT = 1e-9  # spread of logarithms below which values are equal: rounding, of what does not depend on the seed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contrast:
    """A mean difference of logarithms with its spread; `low`, `high` and `p` are None from a single seed."""

    log_ratio: float
    low: float | None
    high: float | None
    p: float | None
    error: float | None
    freedom: float
    n: int
    paired: bool

    def within(self, margin: float) -> bool:
        """Whether two one-sided tests at `ALPHA` place it inside ± log(1 + margin) (Schuirmann 1987)."""
        if self.error is None:
            return False
        reach = self.error * float(special.stdtrit(self.freedom, 1 - ALPHA)) if self.error else 0.0
        return abs(self.log_ratio) + reach <= math.log1p(margin)


def contrast(treated: Mapping[int, float], baseline: Mapping[int, float]) -> Contrast | None:
    """Compares positive values by seed; None where either side has none."""
    shared = sorted(treated.keys() & baseline.keys())
    if len(shared) >= 2:
        differences = np.log([treated[seed] / baseline[seed] for seed in shared])
        error = float(differences.std(ddof=1)) / math.sqrt(len(shared))
        return _contrast(float(differences.mean()), error, len(shared) - 1, len(shared), paired=True)
    a, b = np.log(list(treated.values())), np.log(list(baseline.values()))
    if not len(a) or not len(b):
        return None
    n, mean = min(len(a), len(b)), float(a.mean() - b.mean())
    if n < 2:
        return Contrast(log_ratio=mean, low=None, high=None, p=None, error=None, freedom=0, n=n, paired=False)
    parts = [float(one.var(ddof=1)) / len(one) for one in (a, b)]
    total = sum(parts)
    spent = sum(part**2 / (len(one) - 1) for part, one in zip(parts, (a, b), strict=True))
    return _contrast(mean, math.sqrt(total), total**2 / spent if spent else 2 * n - 2, n, paired=False)


def _contrast(mean: float, error: float, freedom: float, n: int, *, paired: bool) -> Contrast:
    if error < _EXACT:
        p = 1.0 if abs(mean) < _EXACT else 0.0
        return Contrast(log_ratio=mean, low=mean, high=mean, p=p, error=0.0, freedom=freedom, n=n, paired=paired)
    reach = error * float(special.stdtrit(freedom, 1 - ALPHA / 2))
    p = 2 * float(special.stdtr(freedom, -abs(mean) / error))
    return Contrast(
        log_ratio=mean, low=mean - reach, high=mean + reach, p=p, error=error, freedom=freedom, n=n, paired=paired
    )


def censored_p(treated: list[tuple[float, bool]], baseline: list[tuple[float, bool]]) -> float:
    """Tests which of two groups comes first, some of whom never arrived: Gehan's score, permuted exactly (Gehan 1965).

    Args:
        treated, baseline: (place, whether it was reached there); a place not reached is one that it lies beyond.

    Returns:
        The two-sided p: the share of ways to deal out the runs whose score is as far from zero.
    """
    runs = [*treated, *baseline]
    scores = [sum(_sooner(one, other) for other in runs) for one in runs]
    n, seen = len(treated), abs(sum(scores[: len(treated)]))
    if math.comb(len(runs), n) <= 20_000:
        dealt = [abs(sum(chosen)) for chosen in itertools.combinations(scores, n)]
    else:
        random = np.random.default_rng(0)
        dealt = [seen, *(abs(float(random.permutation(scores)[:n].sum())) for _ in range(20_000))]
    return sum(value >= seen - 1e-9 for value in dealt) / len(dealt)


def _sooner(one: tuple[float, bool], other: tuple[float, bool]) -> int:
    """1 if `one` surely arrives after `other`, −1 if before, 0 if that cannot be told."""
    if other[1] and (one[0] > other[0] or (one[0] == other[0] and not one[1])):
        return 1
    if one[1] and (other[0] > one[0] or (other[0] == one[0] and not other[1])):
        return -1
    return 0


def treatment_effects(table: pd.DataFrame, spreads: Mapping[str, float] | None = None) -> pd.DataFrame:
    """Compares every treatment with its baseline in every outcome.

    Args:
        table: rows of `experiments.outcomes`.
        spreads: by device, how far processes of one cell differ, as a fraction: no gap in time below it is ranked.

    Returns:
        One row a device, model, treatment and outcome: ratio with its 95 % interval, p and Holm's p, verdict (better,
        worse, same, undecided; `OTHER_WORK` for an outcome `PER_RUN` that is of `tokens_ratio` times the baseline's
        tokens), the noise (standard deviation of the difference of logarithms over seeds), the noise floor
        of so many seeds, and how many seeds would decide. Of runs that did not all reach the loss: `at_least` or
        `at_most`, and counts.
    """
    rows = []
    present = [outcome for outcome in OUTCOMES if table[outcome].notna().any() or outcome in TO_LOSS]
    for (device, name), group in table.groupby(["device", "name"], sort=False):
        sides = dict(iter(group.groupby("treatment", sort=False)))
        baseline = sides.get(BASELINE)
        if baseline is None:
            continue
        for treatment, frame in sides.items():
            if treatment == BASELINE:
                continue
            identity = {"device": device, "name": name, "treatment": treatment, "levels": frame["levels"].iloc[0]}
            for outcome in present:
                found = _effect(frame, baseline, outcome)
                if found is not None:
                    found["tokens_ratio"] = _tokens(frame, outcome) / _tokens(baseline, outcome)
                    rows.append({**identity, "outcome": outcome, **found, "record": frame["record"].iloc[0]})
    effects = pd.DataFrame(rows, columns=COLUMNS)
    corrected = effects.groupby(["device", "outcome"], sort=False)["p"].transform(holm)
    effects["p_holm"] = corrected.astype(float)
    effects["verdict"] = [_verdict(row, (spreads or {}).get(row["device"])) for row in effects.to_dict("records")]
    decided = effects.verdict != "undecided"
    effects.loc[decided, ["seeds_to_decide", "more_seeds"]] = np.nan
    return effects


COLUMNS = [
    *IDENTITY, "tokens_ratio", "outcome", "ratio", "low", "high", "p", "p_holm", "verdict", "equivalent", "margin",
    "n_seeds", "paired", "noise", "noise_floor", "seeds_to_decide", "more_seeds", "n_reached", "n_runs",
    "n_reached_baseline", "n_runs_baseline", "at_least", "at_most", "record",
]  # fmt: skip


def holm(p: pd.Series) -> pd.Series:
    """Holm's correction of the values that there are (Holm 1979)."""
    known = p.dropna().astype(float)
    return pd.Series(multipletests(known, method="holm")[1], index=known.index).reindex(p.index) if len(known) else p


def by_seed(frame: pd.DataFrame, outcome: str) -> dict[int, float]:
    """The values of an outcome by seed, of the runs that have one."""
    pairs = zip(frame["seed"].to_list(), frame[outcome].to_list(), strict=True)
    return {int(seed): float(value) for seed, value in pairs if value is not None and value > 0}


def _tokens(frame: pd.DataFrame, outcome: str) -> float:
    """How many tokens an outcome of finished runs is of: a step's, or all that they saw."""
    finished = frame[frame.status == "ok"]
    of_a_step = outcome == "step_time_s"
    return (finished.step_time_s / finished.token_time_s if of_a_step else finished.tokens_at_end).median()


def _effect(frame: pd.DataFrame, baseline: pd.DataFrame, outcome: str) -> dict | None:
    margin = OUTCOMES[outcome].margin
    treated, reference = by_seed(frame, outcome), by_seed(baseline, outcome)
    if outcome in TO_LOSS:
        sides = [_arrivals(side, outcome) for side in (frame, baseline)]
        if not all(sides):
            return None
        counts = dict(
            zip(("n_reached", "n_reached_baseline"), (sum(ok for _, ok in side) for side in sides), strict=True)
        )
        counts |= {"n_runs": len(sides[0]), "n_runs_baseline": len(sides[1])}
        if counts["n_reached"] < counts["n_runs"] or counts["n_reached_baseline"] < counts["n_runs_baseline"]:
            return {**counts, **_censored(*sides), "margin": margin, "equivalent": False}
    else:
        counts = {}
    compared = contrast(treated, reference)
    if compared is None:
        return None
    known = compared.low is not None
    noise = compared.error * math.sqrt(compared.n) if known else None
    needed = seeds_to_decide(compared.log_ratio, noise, math.log1p(margin)) if known else None
    return {
        **counts, "ratio": math.exp(compared.log_ratio), "low": math.exp(compared.low) if known else None,
        "high": math.exp(compared.high) if known else None, "p": compared.p, "n_seeds": compared.n,
        "equivalent": compared.within(margin), "margin": margin, "paired": compared.paired, "noise": noise,
        "noise_floor": detectable(noise / math.sqrt(2), compared.n) if known else None,
        "seeds_to_decide": needed, "more_seeds": max(needed - compared.n, 1) if needed else None,
    }  # fmt: skip


def _arrivals(frame: pd.DataFrame, outcome: str) -> list[tuple[float, bool]]:
    end = {"tokens_to_loss": "tokens_at_end", "seconds_to_loss": "seconds_at_end"}[outcome]
    columns = (frame[name].to_list() for name in (outcome, end, "threshold_loss"))
    return [
        (float(last if math.isnan(reached) else reached), not math.isnan(reached))
        for reached, last, threshold in zip(*columns, strict=True)
        if not math.isnan(threshold) and not (math.isnan(reached) and math.isnan(last))
    ]


def _censored(treated: list[tuple[float, bool]], baseline: list[tuple[float, bool]]) -> dict:
    """What can be said where some runs never arrived: a bound of the ratio, and which side is sooner."""
    log_ratio = float(
        np.mean(np.log([place for place, _ in treated])) - np.mean(np.log([place for place, _ in baseline]))
    )
    all_reached = [all(ok for _, ok in side) for side in (treated, baseline)]
    return {
        "n_seeds": min(len(treated), len(baseline)), "paired": False, "p": censored_p(treated, baseline),
        "at_least": math.exp(log_ratio) if all_reached[1] else None,
        "at_most": math.exp(log_ratio) if all_reached[0] else None,
    }  # fmt: skip


def _verdict(row: dict, spread: float | None) -> str:
    """Same before better and worse: what is surely smaller than the margin is none, however small its p."""
    if row["outcome"] in PER_RUN and abs(row["tokens_ratio"] - 1) > TOKENS_EQUAL:
        return OTHER_WORK
    if row["equivalent"]:
        return "same"
    if pd.isna(row["p_holm"]) or row["p_holm"] > ALPHA:
        return "undecided"
    ratio = next((row[key] for key in ("ratio", "at_least", "at_most") if pd.notna(row[key])), None)
    timed = row["outcome"] in ("step_time_s", "token_time_s", "train_s")
    if ratio is None or (timed and spread is not None and abs(math.log(ratio)) <= math.log1p(spread)):
        return "undecided"
    return "worse" if ratio > 1 else "better"
