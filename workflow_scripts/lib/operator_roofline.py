"""Kinds of work on the roofline: what they compute and move, how fast, and how near to what the device allows."""

import pandas as pd

from workflow_scripts.lib import csv_tables
from workflow_scripts.lib.attention_table import best_of

PASS = ["device", "probe", "precision", "mode"]
SUMS = ["calls_per_step", "self_time_s", "share", "flops", "moved_bytes"]
RATES = ["flop_per_byte", "flop_per_s", "bytes_per_s", "of_roof"]
NEEDED = [*PASS, "category", "status", *SUMS]


def kinds(rows: pd.DataFrame, ceilings: pd.DataFrame) -> pd.DataFrame:
    """Sums the operators of each pass by kind of work.

    Args:
        rows: operator_probes.csv.
        ceilings: ceilings.csv.

    Returns:
        By pass and kind, the largest share first: the sums; `flop_per_byte` and `flop_per_s` of the operators whose
        FLOPs and bytes are both known; of those whose bytes are known `bytes_per_s`, and `of_roof`, the least time that
        the device's best rates of products and of copies allow over theirs: above 1 where data came out of a cache.
        Missing where the operators that it is of take less than half of the kind's time.
    """
    rows = csv_tables.with_columns(rows, NEEDED)
    timed = rows[(rows.status == "ok") & rows.share.notna()]
    if timed.empty:
        return pd.DataFrame(columns=[*NEEDED, *RATES])
    keys = [*PASS, "category"]
    summed = timed.groupby(keys, sort=False)[SUMS].sum(min_count=1)
    moving = _sums_of_most(timed[timed.moved_bytes.notna()], summed)
    both = _sums_of_most(timed[timed.moved_bytes.notna() & timed.flops.notna()], summed)
    best = [best_of(ceilings, device, precision) for device, _, precision, *_ in summed.index]
    least_s = pd.concat(
        [
            moving.flops.fillna(0.0) / [flop_per_s for flop_per_s, _ in best],
            moving.moved_bytes / [bytes_per_s for _, bytes_per_s in best],
        ],
        axis=1,
    ).max(axis=1, skipna=False)
    found = summed.assign(
        flop_per_byte=both.flops / both.moved_bytes,
        flop_per_s=both.flops / both.self_time_s,
        bytes_per_s=moving.moved_bytes / moving.self_time_s,
        of_roof=least_s / moving.self_time_s,
    )
    return found.reset_index().sort_values([*PASS, "share"], ascending=[True] * len(PASS) + [False], kind="stable")


def _sums_of_most(rows: pd.DataFrame, whole: pd.DataFrame) -> pd.DataFrame:
    """Sums by pass and kind, missing where these rows take less than half of the kind's time."""
    names = ["self_time_s", "flops", "moved_bytes"]
    sums = rows.groupby(list(whole.index.names), sort=False)[names].sum(min_count=1).reindex(whole.index)
    return sums.where((sums.self_time_s > 0) & (sums.self_time_s >= whole.self_time_s / 2))
