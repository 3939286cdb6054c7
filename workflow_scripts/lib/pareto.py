"""Which treatments nothing beats: the Pareto front over time, memory and loss, with what the seeds leave open."""

import math

import numpy as np
import pandas as pd

from workflow_scripts.lib.effects import by_seed, contrast
from workflow_scripts.lib.experiments import OUTCOMES

MEASURES = ("train_s", "peak_bytes", "final_val_loss")
COLUMNS = [
    "device", "name", "treatment", *(f"{measure}{end}" for measure in MEASURES for end in ("", "_low", "_high")),
    "n_seeds", "front", "beaten_by",
]  # fmt: skip


def pareto(table: pd.DataFrame) -> pd.DataFrame:
    """Places every treatment of every model of a device on the front, behind it, or says that it is undecided.

    One beats another if it is better in one measure, its 95 % interval clear of one, and in none worse by more than the
    margin of that measure, its interval clear of that. A treatment that each other surely trails in some measure is on
    the front; neither so nor beaten is undecided.

    Args:
        table: rows of `experiments.outcomes`.

    Returns:
        The columns `COLUMNS`: geometric means with the least and the most over seeds; `front` is "front", "beaten" or
        "undecided"; `beaten_by` names the first that does.
    """
    rows = []
    for device, on_device in table.groupby("device", sort=False):
        groups = {}
        for key, frame in on_device.dropna(subset=list(MEASURES)).groupby(["name", "treatment"], sort=False):
            groups[key] = {measure: by_seed(frame, measure) for measure in MEASURES}
        for key, own in groups.items():
            others = {other: _compared(values, own) for other, values in groups.items() if other != key}
            beaten_by = next((other for other, ratios in others.items() if _beats(ratios)), None)
            front = beaten_by is None and all(_trails(ratios) for ratios in others.values())
            spread = {}
            for measure, values in own.items():
                seen = list(values.values())
                spread |= {measure: math.exp(float(np.mean(np.log(seen)))), f"{measure}_low": min(seen)}
                spread[f"{measure}_high"] = max(seen)
            rows.append({
                "device": device, "name": key[0], "treatment": key[1], **spread,
                "n_seeds": min(map(len, own.values())),
                "front": "beaten" if beaten_by else "front" if front else "undecided",
                "beaten_by": " ".join(beaten_by) if beaten_by else None,
            })  # fmt: skip
    return pd.DataFrame(rows, columns=COLUMNS)


def _compared(other: dict, own: dict) -> dict[str, tuple[float, float]]:
    """Intervals of the logarithm of other over own, by measure; the whole line where the spread is unknown."""
    found = {}
    for measure in MEASURES:
        ratio = contrast(other[measure], own[measure])
        found[measure] = (-math.inf, math.inf) if ratio is None or ratio.low is None else (ratio.low, ratio.high)
    return found


def _beats(ratios: dict[str, tuple[float, float]]) -> bool:
    no_worse = all(high <= math.log1p(OUTCOMES[measure].margin) for measure, (_, high) in ratios.items())
    return no_worse and any(high < 0 for _, high in ratios.values())


def _trails(ratios: dict[str, tuple[float, float]]) -> bool:
    return any(low > 0 for low, _ in ratios.values())
