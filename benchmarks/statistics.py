"""Shows that the analysis of experiments finds the truth that it is given.

    python benchmarks/statistics.py [--simulations 1000] [--seed 0] [--json FILE]

Experiments are made up with known effects, interactions and noise (logarithms normal, a share of it common to all runs
of a seed, one treatment three times as noisy), and handed to the same functions that write a study's tables. Counted is
how often 95 % intervals hold the truth, how often equal treatments are called better or worse, how often equal ones are
called the same and real effects found, and what becomes of runs that never reach the loss.

`--json FILE` writes {"figures", "targets", "met", "conditions"}.
"""

import argparse
import gc
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
# This file's folder first on the path would shadow the standard library's `statistics`.
sys.path[:] = [str(ROOT), *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT / "benchmarks")]

from workflow_scripts.lib.effects import treatment_effects  # noqa: E402
from workflow_scripts.lib.experiments import COLUMNS, OUTCOMES  # noqa: E402
from workflow_scripts.lib.interactions import interactions  # noqa: E402

SEEDS = (3, 5)
EFFECTS = {"deep": 1.8, "fast": 0.97, "equal": 1.0, "noisy": 1.0}
TOGETHER = {"deep+fast": 0.95, "deep+equal": 1.0}  # what both do beyond the product of each
FACTORS = {"deep": "size", "fast": "way", "equal": "way", "noisy": "way"}
NOISE, SHARED, MUCH = 0.01, 0.02, 3.0  # of a run; of its seed; how many times as noisy the noisy treatment is
OUTCOME = "loss_at_tokens"
LIMIT, TO_LOSS_NOISE = 1.15, 0.1  # of the median run's tokens, where runs end; noise of tokens to the loss
COVERAGE, FALSE = (0.93, 0.97), 0.05


def main() -> int:
    """Simulates, prints, and returns 1 if a goal was missed."""
    options = _parse()
    began = time.process_time()
    figures: dict[str, float] = {}
    for n_seeds in SEEDS:
        figures |= simulate(options.simulations, n_seeds, options.seed)
    report = judged(figures)
    report["conditions"] = {
        "simulations": options.simulations, "seed": options.seed, "noise": NOISE, "noise_of_seed": SHARED,
        "noisier": MUCH, "processor_s": time.process_time() - began,
    }  # fmt: skip
    _print(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0 if all(report["met"].values()) else 1


def simulate(simulations: int, n_seeds: int, seed: int) -> dict[str, float]:
    """Analyses made-up experiments and counts; figures are named `…_N` for N seeds."""
    random = np.random.default_rng([seed, n_seeds])
    effects, crossed = [], []
    for number in range(simulations):
        gc.freeze()  # statsmodels collects garbage at each correction, over all that is not frozen
        table = experiment(random, n_seeds)
        effects.append(treatment_effects(table).assign(simulation=number))
        crossed.append(interactions(table[table.treatment != "noisy"]))
    found, tested = pd.concat(effects, ignore_index=True), pd.concat(crossed, ignore_index=True)
    ratios, arrivals = found[found.outcome == OUTCOME], found[found.outcome == "tokens_to_loss"]
    truth = ratios.treatment.map(truths())
    covered = (ratios.low <= truth) & (truth <= ratios.high)
    alone = ratios.treatment.isin(EFFECTS)
    equal = ratios[ratios.treatment == "equal"]
    pair = tested.level_a + "+" + tested.level_b
    inside = (tested.low <= pair.map(TOGETHER)) & (pair.map(TOGETHER) <= tested.high)
    absent = tested[pair == "deep+equal"]
    unreached = arrivals[arrivals["ratio"].isna()]
    figures = {
        "coverage_effects": covered[alone & (ratios.treatment != "noisy")].mean(),
        "coverage_noisy_effect": covered[ratios.treatment == "noisy"].mean(),
        "coverage_interactions": inside.mean(),
        "equal_called_better": (equal.verdict == "better").mean(),
        "equal_called_worse": (equal.verdict == "worse").mean(),
        "equal_called_same": (equal.verdict == "same").mean(),
        "noisy_called_better": (ratios[ratios.treatment == "noisy"].verdict == "better").mean(),
        "absent_interaction_found": (absent.verdict != "undecided").mean(),
        "present_interaction_found": (tested[pair == "deep+fast"].verdict == "below").mean(),
        "small_effect_found": (ratios[ratios.treatment == "fast"].verdict == "better").mean(),
        "any_false_in_family": ratios[ratios.treatment.isin(["equal", "noisy"])]
        .verdict.isin(["better", "worse"]).groupby(ratios.simulation).any().mean(),
        "unreached_share": len(unreached) / len(arrivals),
        "unreached_with_interval": float(unreached.low.notna().mean()) if len(unreached) else 0.0,
        "unreached_equal_called_better": (arrivals[arrivals.treatment == "equal"].verdict == "better").mean(),
        "unreached_slow_called_better": (arrivals[arrivals.treatment == "deep"].verdict == "better").mean(),
        "unreached_slow_called_worse": (arrivals[arrivals.treatment == "deep"].verdict == "worse").mean(),
    }  # fmt: skip
    return {f"{name}_{n_seeds}": float(value) for name, value in figures.items()}


def truths() -> dict[str, float]:
    """The true ratio of each treatment to the baseline."""
    both = {name: EFFECTS[name.split("+")[0]] * EFFECTS[name.split("+")[1]] * ratio for name, ratio in TOGETHER.items()}
    return EFFECTS | both


def experiment(random: np.random.Generator, n_seeds: int) -> pd.DataFrame:
    """One experiment's outcomes, a row a run, with its noise drawn anew."""
    of_seed = random.normal(0, SHARED, n_seeds)
    rows = []
    for treatment, ratio in {"baseline": 1.0, **truths()}.items():
        noise = NOISE * (MUCH if treatment == "noisy" else 1)
        levels = {"size": "baseline", "way": "baseline"} | {
            FACTORS[level]: level for level in treatment.split("+") if level in FACTORS
        }
        for seed in range(n_seeds):
            tokens = 1e6 * ratio * math.exp(random.normal(0, TO_LOSS_NOISE))
            rows.append({
                "device": "made up", "name": "model", "treatment": treatment, "levels": json.dumps(levels),
                "seed": seed, "status": "ok", OUTCOME: 1.5 * ratio * math.exp(of_seed[seed] + random.normal(0, noise)),
                "tokens_to_loss": tokens if tokens <= LIMIT * 1e6 else np.nan, "tokens_at_end": LIMIT * 1e6,
                "threshold_loss": 1.6,
            })  # fmt: skip
    return pd.DataFrame(rows).reindex(columns=[*COLUMNS])


def judged(figures: dict[str, float]) -> dict[str, Any]:
    """Holds the figures against their goals."""
    targets: dict[str, Any] = {name: list(COVERAGE) for name in figures if name.startswith("coverage_")}
    targets |= {name: FALSE for name in figures if "called_better" in name or name.startswith(("absent", "any_false"))}
    targets |= {name: 0.0 for name in figures if name.startswith("unreached_with_interval")}
    met = {
        name: bound[0] <= figures[name] <= bound[1] if isinstance(bound, list) else figures[name] <= bound
        for name, bound in targets.items()
    }
    return {"figures": figures, "targets": targets, "met": met}


def _print(report: dict[str, Any]) -> None:
    conditions = report["conditions"]
    taken = f"{conditions['processor_s']:.0f} s of one core"
    print(f"{conditions['simulations']:,} made-up experiments for each number of seeds, {taken}")
    print(f"margin of “same”: {OUTCOMES[OUTCOME].margin:.0%}; noise {NOISE:.0%} a run, {SHARED:.0%} a seed\n")
    print(f"{'':36}{SEEDS[0]:>4} seeds{SEEDS[1]:>6} seeds  goal")
    names = list(dict.fromkeys(name.rsplit("_", 1)[0] for name in report["figures"]))
    for name in names:
        keys = [f"{name}_{n}" for n in SEEDS]
        bound = report["targets"].get(keys[0])
        goal = (
            "" if bound is None else f"{bound[0]:.0%}–{bound[1]:.0%}" if isinstance(bound, list) else f"≤ {bound:.0%}"
        )
        missed = " missed" if bound is not None and not all(report["met"][key] for key in keys) else ""
        values = "".join(f"{report['figures'][key]:>12.1%}" for key in keys)
        print(f"{name.replace('_', ' '):34}{values}  {goal}{missed}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=1000, help="experiments for each number of seeds")
    parser.add_argument("--seed", type=int, default=0, help="of the noise")
    parser.add_argument("--json", type=Path, help="where the figures go")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
