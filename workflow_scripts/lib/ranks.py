"""One number for time, memory and loss together: as `cpu_optimizations` scored its runs, and by equal weights.

Its equation (1) is loss − largest time / time − largest memory / memory, the smallest score first. What it calls equal
weight depends on how far each term reaches among the runs; that reach, as a share, is the weight that it really has.
"""

import numpy as np
import pandas as pd

TERMS = ("loss", "time_s", "memory_bytes")
KEYS = ["device", "name", "treatment"]
COLUMNS = [
    *KEYS, *TERMS, "score", "rank", "minmax_score", "minmax_rank", "moved", "best_rank", "worst_rank", "n_seeds",
    *(f"weight_{term.split('_')[0]}" for term in TERMS),
]  # fmt: skip


def score(rows: pd.DataFrame) -> pd.DataFrame:
    """Scores rows with the columns of `TERMS` among each other, both ways, smallest first.

    Returns:
        The rows with score, rank, minmax_score (mean over terms of where each lies between its least and its most),
        minmax_rank, moved (places gained by the second way), and weight_loss, weight_time, weight_memory.
    """
    terms = pd.DataFrame({
        "loss": rows["loss"],
        "time": -rows["time_s"].max() / rows["time_s"],
        "memory": -rows["memory_bytes"].max() / rows["memory_bytes"],
    })  # fmt: skip
    reach = terms.max() - terms.min()
    weights = reach / reach.sum() if reach.sum() else reach * np.nan
    values = rows[list(TERMS)]
    spans = (values.max() - values.min()).replace(0, np.nan)
    scored = rows.assign(score=terms.sum(axis=1), minmax_score=((values - values.min()) / spans).fillna(0).mean(axis=1))
    scored["rank"] = scored["score"].rank(method="min").astype(int)
    scored["minmax_rank"] = scored["minmax_score"].rank(method="min").astype(int)
    scored["moved"] = scored["rank"] - scored["minmax_rank"]
    return scored.assign(**{f"weight_{term}": weight for term, weight in weights.items()})


def ranks(table: pd.DataFrame) -> pd.DataFrame:
    """Ranks the treatments of all models of each device by time, memory and loss at each one's own end.

    Args:
        table: rows of `experiments.outcomes`.

    Returns:
        The columns `COLUMNS`: geometric means over seeds, scores and ranks as `score` gives them, and the best and the
        worst rank that single seeds give.
    """
    renamed = table.rename(columns={"final_val_loss": "loss", "train_s": "time_s", "peak_bytes": "memory_bytes"})
    renamed = renamed.dropna(subset=list(TERMS))
    parts = []
    for _, rows in renamed.groupby("device", sort=False):
        logs = rows.assign(**{term: np.log(rows[term].astype(float)) for term in TERMS})
        means = np.exp(logs.groupby(KEYS, sort=False)[list(TERMS)].mean()).reset_index()
        scored = score(means).set_index(KEYS)
        seeds = [frame for _, frame in rows.groupby("seed") if len(frame) == len(means)]
        single = pd.concat([score(frame).set_index(KEYS)["rank"] for frame in seeds]) if seeds else pd.Series(dtype=int)
        for name, way in (("best_rank", "min"), ("worst_rank", "max")):
            scored[name] = single.groupby(level=KEYS).agg(way) if len(seeds) > 1 else np.nan
        parts.append(scored.assign(n_seeds=len(seeds)).reset_index().sort_values("rank", kind="stable"))
    return pd.concat(parts, ignore_index=True)[COLUMNS] if parts else pd.DataFrame(columns=COLUMNS)
