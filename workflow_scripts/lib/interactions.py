"""Whether two changes together do what each alone would: interactions as ratios on the logarithm, with their test.

Effects multiply, so what is tested is both × neither over one × the other, by least squares on logarithms of the four
groups of runs, with the seeds as blocks where all four share them. The additive score beside it is that of percentages.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
import statsmodels.api as sm

from workflow_scripts.lib.effects import by_seed, holm
from workflow_scripts.lib.experiments import MODEL, OUTCOMES, TO_LOSS, changed, levels_of
from workflow_scripts.lib.power import ALPHA

_EXACT = 1e-9  # residuals of logarithms below which the four groups hold one value each
COLUMNS = (
    "device name factor_a level_a factor_b level_b outcome interaction low high p p_holm verdict n_seeds blocked "
    "freedom change_a change_b expected_change change_both additive_deviation"
).split()


def interactions(table: pd.DataFrame) -> pd.DataFrame:
    """Tests every two levels of different factors that were run alone, together and not at all.

    The trained model is a factor, too, of which the first is the reference; `name` is empty for its interactions.

    Args:
        table: rows of `experiments.outcomes`.

    Returns:
        One row a device, model, pair of levels and outcome: the interaction as a ratio (below 1: together they give
        less than the product of each) with its 95 % interval, p and Holm's p over the pairs of one outcome on one
        device, verdict (below, above, undecided); each change alone and both as fractions, the sum of the changes
        alone, and how far both together lie from it: `additive_deviation`. Outcomes up to a loss have none, since runs
        that never reached it leave no product to test.
    """
    rows = []
    present = [outcome for outcome in OUTCOMES if outcome not in TO_LOSS and table[outcome].notna().any()]
    for identity, groups in _squares(table):
        for outcome in present:
            found = _interaction([by_seed(group, outcome) for group in groups])
            if found is not None:
                rows.append({**identity, "outcome": outcome, **found})
    tested = pd.DataFrame(rows, columns=COLUMNS)
    tested["p_holm"] = tested.groupby(["device", "outcome"], sort=False)["p"].transform(holm).astype(float)
    decided = tested.p_holm <= ALPHA
    tested["verdict"] = np.where(decided, np.where(tested.interaction < 1, "below", "above"), "undecided")
    return tested


def _squares(table: pd.DataFrame) -> Iterator[tuple[dict, list[pd.DataFrame]]]:
    """Finds the four groups of runs of each pair of levels: neither, the first, the second, both."""
    for device, on_device in table.groupby("device", sort=False):
        groups = dict(iter(on_device.groupby(["name", "treatment"], sort=False)))
        levels = {key: levels_of(frame.iloc[0].to_dict()) for key, frame in groups.items()}
        found = {(key[0], frozenset((f, levels[key][f]) for f in changed(levels[key]))): key for key in groups}
        names = list(dict.fromkeys(name for name, _ in groups))
        for name, together in found:
            alone = sorted(together, key=lambda pair: list(levels[found[(name, together)]]).index(pair[0]))
            if len(alone) == 2:
                a, b = alone
                corners = [(name, frozenset(part)) for part in ((), (a,), (b,), (a, b))]
                yield from _square(device, name, a, b, corners, found, groups)
            if len(alone) == 1 and name != names[0]:
                corners = [(names[0], frozenset()), (name, frozenset()), (names[0], together), (name, together)]
                yield from _square(device, None, (MODEL, name), alone[0], corners, found, groups)


def _square(
    device: str,
    name: str | None,
    a: tuple[str, str],
    b: tuple[str, str],
    corners: list[tuple],
    found: dict,
    groups: dict,
) -> Iterator[tuple[dict, list[pd.DataFrame]]]:
    if all(corner in found for corner in corners):
        identity = {
            "device": device,
            "name": name,
            "factor_a": a[0],
            "level_a": a[1],
            "factor_b": b[0],
            "level_b": b[1],
        }
        yield identity, [groups[found[corner]] for corner in corners]


def _interaction(groups: list[dict[int, float]]) -> dict | None:
    if not all(groups):
        return None
    shared = sorted(set.intersection(*(set(group) for group in groups)))
    blocked = len(shared) >= 2
    if blocked:
        groups = [{seed: group[seed] for seed in shared} for group in groups]
    means = [float(np.mean(np.log(list(group.values())))) for group in groups]
    log_ratio = means[3] - means[1] - means[2] + means[0]
    changes = [math.expm1(mean - means[0]) for mean in means[1:]]
    tested = _least_squares(groups, shared if blocked else [])
    return {
        "interaction": math.exp(log_ratio), **tested, "n_seeds": min(map(len, groups)), "blocked": blocked,
        "change_a": changes[0], "change_b": changes[1], "expected_change": changes[0] + changes[1],
        "change_both": changes[2], "additive_deviation": changes[2] - changes[0] - changes[1],
    }  # fmt: skip


def _least_squares(groups: list[dict[int, float]], blocks: list[int]) -> dict:
    rows = [
        (math.log(value), [1, a, b, a * b, *(seed == block for block in blocks[1:])])
        for (a, b), group in zip(itertools.product((0, 1), repeat=2), _ordered(groups), strict=True)
        for seed, value in group.items()
    ]
    values, design = np.array([value for value, _ in rows]), np.array([line for _, line in rows], dtype=float)
    if len(values) <= design.shape[1]:
        return dict.fromkeys(("low", "high", "p", "freedom"))
    fitted = sm.OLS(values, design).fit()
    estimate, freedom = float(fitted.params[3]), float(fitted.df_resid)
    if math.sqrt(max(fitted.mse_resid, 0)) < _EXACT:
        exact = math.exp(estimate)
        return {"low": exact, "high": exact, "p": 1.0 if abs(estimate) < _EXACT else 0.0, "freedom": freedom}
    low, high = np.exp(fitted.conf_int(alpha=ALPHA)[3])
    return {"low": float(low), "high": float(high), "p": float(fitted.pvalues[3]), "freedom": freedom}


def _ordered(groups: list[dict[int, float]]) -> list[dict[int, float]]:
    """Neither, second, first, both: in the order in which a product counts up."""
    return [groups[0], groups[2], groups[1], groups[3]]
