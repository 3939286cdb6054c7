"""Which precision and execution to train in, and from which batch on throughput stops rising, by what was measured.

A way is a pair of precision and execution. One that is barred has no measured cell, and so never beats another.
"""

import dataclasses
import statistics

import pandas as pd

from workflow_scripts.lib import comparisons

WITHIN = 0.05  # the batch at which throughput stops rising: the smallest within this share of the best
MIN_BATCHES = 3  # fewer batches do not show where a curve flattens


@dataclasses.dataclass(frozen=True, kw_only=True)
class Way:
    """A precision and an execution, `ratio` times as fast as `over` in the median of `n_pairs` cells."""

    precision: str
    execution: str
    ratio: float = 1.0
    n_pairs: int = 0
    over: "Way | None" = None


def fastest_way(cells: pd.DataFrame, device: str, training: Way, noise_floor: float | None) -> Way:
    """Finds the way that beats training's own beyond noise in every pair of cells by most; that itself if none does.

    Where no cell was measured in training's own, the others are compared with the way that was measured most.

    Args:
        cells: the rows of cells.csv.
        device: whose cells count.
        training: precision and execution of training.
        noise_floor: the spread between processes of one cell, as a share; None if unknown.
    """
    rows = cells[(cells.device == device) & (cells.status == "ok") & (cells["mode"] == "step")]
    keys = ["model", "batch_size", "sequence_length", "attention"]
    by_way = {
        key: {cell: comparisons.pool(same, "throughput_tokens_per_s") for cell, same in group.groupby(keys)}
        for key, group in rows.groupby(["precision", "execution"], sort=True)
    }
    own = (training.precision, training.execution)
    if by_way and own not in by_way:
        own = max(by_way, key=lambda way: len(by_way[way]))
    reference, over = by_way.get(own, {}), Way(precision=own[0], execution=own[1])
    best = training
    for (precision, execution), theirs in by_way.items():
        compared = [comparisons.ratio(speed, reference[cell]) for cell, speed in theirs.items() if reference.get(cell)]
        if compared and all(comparisons.verdict(one, noise_floor) == "faster" for one in compared):
            ratio = statistics.median(one.value for one in compared)
            if ratio > best.ratio:
                best = Way(precision=precision, execution=execution, ratio=ratio, n_pairs=len(compared), over=over)
    return best


def enough(throughputs: dict[int, float]) -> int:
    """Gives the smallest batch whose throughput lies within `WITHIN` of the best; `throughputs` are by batch."""
    best = max(throughputs.values())
    return min(batch for batch, throughput in throughputs.items() if throughput >= (1 - WITHIN) * best)


BATCH_COLUMNS = (
    "device model n_params sequence_length precision execution batch_size throughput_tokens_per_s best_batch_size "
    "best_throughput_tokens_per_s still_rising record"
).split()


def measured_batches(cells: pd.DataFrame) -> pd.DataFrame:
    """From which batch on the measured throughput of each model stops rising: a row a model, context and way.

    `still_rising` where the largest batch measured is the smallest that is good enough.
    """
    rows = cells[(cells.status == "ok") & (cells["mode"] == "step") & (cells.attention == "auto")]
    found = []
    keys = ["device", "model", "n_params", "sequence_length", "precision", "execution"]
    for key, group in rows.groupby(keys, sort=False):
        medians = group.groupby("batch_size").throughput_tokens_per_s.median().dropna()
        if len(medians) < MIN_BATCHES:
            continue
        batch = enough(medians.to_dict())
        record = group[group.batch_size == batch].record.iloc[0]
        values = (*key, batch, medians[batch], medians.idxmax(), medians.max(), batch == medians.index.max(), record)
        found.append(dict(zip(BATCH_COLUMNS, values, strict=True)))
    return pd.DataFrame(found, columns=BATCH_COLUMNS)
