"""Brings the operators that probes saw into the form that rules read."""

import pandas as pd


def operators_of_probes(rows: pd.DataFrame, counts: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Gives two tables to audit: shares of the time of each pass, and calls beside those that layers ask for.

    Args:
        rows: operator_probes.csv.
        counts: operator_counts.csv.
    """
    timed = rows[(rows.status == "ok") & rows.share.notna()] if len(rows) else rows
    shares = timed[["device", "probe", "mode", "operator", "share"]] if len(timed) else pd.DataFrame()
    if len(counts):
        label = counts.device + "/" + counts.probe
        counts = counts[["what", "phase", "mode", "expected", "found"]].assign(label=label)
    return {"operators of probes": shares.rename(columns={"probe": "name"}), "counts of operators": counts}
