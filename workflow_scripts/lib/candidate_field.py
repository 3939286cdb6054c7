"""The field of candidates as it is drawn: which of its points, and what its caption says of them."""

import numpy as np
import pandas as pd

from workflow_scripts.lib.quantities import listing, plural, quantity

SHOWN = 1200  # points of a device: more make the page heavy and no picture clearer


def thinned(rows: pd.DataFrame) -> pd.DataFrame:
    """At most `SHOWN` rows, evenly over the field, with every chosen one."""
    places = np.unique(np.linspace(0, len(rows) - 1, min(SHOWN, len(rows))).astype(int))
    even = pd.Series(False, index=rows.index)
    even.iloc[places] = True
    return rows[even | rows.role.notna()]


def caption(rows: pd.DataFrame, budgets: dict) -> str:
    """What the figure shows, with the budgets and how many shapes overrun each."""
    told = []
    for device, group in rows.groupby("device", sort=False):
        slow, large = int(group.over_time.sum()), int(group.over_memory.sum())
        told.append(f"{slow:,} take longer than the budget and {large:,} need more memory on {device}")
    memory = quantity(budgets["memory_gib"] * 2**30, "bytes")
    minutes = quantity(budgets["train_minutes"] * 60, "s")
    n = rows.groupby(["n_layer", "n_embd"]).ngroups
    fewer = "" if n <= SHOWN else f" Of the field, {SHOWN:,} are drawn."
    return (
        f"What {plural(n, 'candidate shape')} would take to train, by prediction, and where the chosen ones lie; the "
        f"budgets are {minutes} a run and {memory} of peak allocated memory: {listing(told)}.{fewer}"
    )


def text_alternative(rows: pd.DataFrame) -> str:
    chosen = [
        f"{row.role} at {row.n_layer} layers, {row.n_embd} wide" for row in rows.dropna(subset="role").itertuples()
    ]
    return f"Points of predicted training time over size; chosen are {listing(dict.fromkeys(chosen)) or 'none'}."
