"""Where timers agree: their medians side by side, with intervals that hold for both rounds of each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workflow_scripts.lib.estimates import estimate
from workflow_scripts.lib.records import read_record

ASSAY = "assay"
TIMER_COLUMNS = (
    "device cell timer status reason n median_s low_s high_s iqr_s between_rounds warned ratio_to_assay agree record"
).split()


def timer_rows(path: Path) -> list[dict[str, Any]]:
    """A row for each timer of a record, times in s per step.

    `median_s` and `iqr_s` are of the `n` samples of both rounds. `low_s` and `high_s` enclose the 95 % intervals of the
    rounds' medians: two rounds of one timer on a machine that is not quiet differ by more than either interval says.
    `between_rounds` is the larger over the smaller of their medians, less 1. `agree`: the timer's range and Assay's
    overlap; empty where a round is too short for an interval.
    """
    record = read_record(path)
    rounds = (record["result"] or {}).get("rounds") or []
    identity = {"device": record["device"]["id"], "cell": record["id"], "record": path.as_posix()}
    identity |= {"status": record["status"], "reason": record["reason"]}
    found = {
        timer: _summary([round for round in rounds if round["timer"] == timer])
        for timer in dict.fromkeys(round["timer"] for round in rounds)
    }
    ours = found.get(ASSAY)
    if ours is None:
        return [identity]
    return [
        {
            **identity,
            "timer": timer,
            **row,
            "ratio_to_assay": row["median_s"] / ours["median_s"] if row["median_s"] and ours["median_s"] else None,
            "agree": _overlap(row, ours),
        }
        for timer, row in found.items()
    ]


def _summary(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    pooled = estimate([sample for round in rounds for sample in round["samples_s"]])
    single = [estimate(round["samples_s"]) for round in rounds]
    lows, highs, medians = ([getattr(one, end) for one in single] for end in ("low", "high", "median"))
    known = None not in lows and None not in medians
    return {
        "n": pooled.n,
        "median_s": pooled.median,
        "low_s": min(lows) if known else None,
        "high_s": max(highs) if known else None,
        "iqr_s": pooled.iqr,
        "between_rounds": max(medians) / min(medians) - 1 if len(medians) > 1 and None not in medians else None,
        "warned": any(round["warned"] for round in rounds),
    }


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool | None:
    if None in (one["low_s"], other["low_s"]):
        return None
    return one["low_s"] <= other["high_s"] and other["low_s"] <= one["high_s"]
