"""Steps that took much longer than their neighbours, and what of the logged events may have made them.

A step is a spike if it is longer than its reference by so many robust deviations and by so large a share
(`comparisons.THRESHOLDS`). The reference is the running median of its neighbours, or the whole run's where that is
lower, so that a slow spell stands out as well. Neighbouring spikes are one event.
"""

from typing import Any

import numpy as np
import pandas as pd

from workflow_scripts.lib.comparisons import THRESHOLDS
from workflow_scripts.lib.verdicts import BUSY_CORES

COLUMNS = (
    "device run name treatment seed n_run_steps step n_steps step_time_s relative extra_s extra_share cause evidence "
    "looked record"
).split()
WINDOW = 101  # steps
MAD_TO_DEVIATION = 1.4826  # of a normal distribution
UNEXPLAINED = "unexplained"


def find_spikes(step_times: np.ndarray) -> pd.DataFrame:
    """Finds the events in the step times of a run.

    Returns:
        For each event `first` (index), `n_steps`, `longest_s`, `relative` (longest over its reference), `extra_s`.
    """
    times = pd.Series(step_times, dtype=float)
    columns = ["first", "n_steps", "longest_s", "relative", "extra_s"]
    if len(times) < 5:
        return pd.DataFrame(columns=columns)
    reference = np.minimum(times.rolling(WINDOW, center=True, min_periods=1).median(), times.median())
    excess = times / reference - 1
    deviation = MAD_TO_DEVIATION * float((excess - excess.median()).abs().median())
    limit = max(THRESHOLDS["spike_deviations"] * deviation, THRESHOLDS["spike_excess"])
    marked = np.flatnonzero(excess > limit)
    rows = []
    for group in np.split(marked, np.flatnonzero(np.diff(marked) > 1) + 1) if len(marked) else ():
        own = times.iloc[group]
        rows.append(
            (group[0], len(group), own.max(), 1 + excess.iloc[group].max(), (own - reference.iloc[group]).sum())
        )
    return pd.DataFrame(rows, columns=columns)


def spike_rows(record: dict[str, Any], metrics: pd.DataFrame, shown: str) -> list[dict[str, Any]]:
    """Gives a row for each event of a run, with its cause.

    Args:
        record: the run's record.
        metrics: its metrics.csv.
        shown: the record's path.
    """
    run, result = record["spec"], record["result"] or {}
    events = find_spikes(metrics.step_time_s.to_numpy(float))
    total = float(metrics.step_time_s.sum()) if len(metrics) else 0.0
    looks = _looks(result)
    rows = []
    for event in events.itertuples():
        cause, evidence = _cause(event, metrics, result, looks)
        rows.append({
            "device": run["device"]["id"], "run": run["id"],
            **{name: run[name] for name in ("name", "treatment", "seed")},
            "n_run_steps": len(metrics), "step": int(metrics.step.iloc[event.first]), "n_steps": int(event.n_steps),
            "step_time_s": float(event.longest_s), "relative": float(event.relative), "extra_s": float(event.extra_s),
            "extra_share": float(event.extra_s) / total, "cause": cause, "evidence": evidence,
            "looked": len(looks) > 0, "record": shown,
        })  # fmt: skip
    return rows


def _looks(result: dict[str, Any]) -> list[dict[str, Any]]:
    """What the watching job saw, with `at_s` since training began; nothing for a resumed run, whose clock is lost."""
    machine = result.get("machine") or {}
    if result.get("resumed_at_steps") or not machine.get("before"):
        return []
    began = machine["before"]["monotonic_s"]
    return [{**look, "at_s": look["monotonic_s"] - began} for look in machine.get("during") or []]


def _cause(event: Any, metrics: pd.DataFrame, result: dict[str, Any], looks: list[dict[str, Any]]) -> tuple[str, str]:
    """The event's cause and what that rests on; a disturbance is named only where it was seen at that moment."""
    step = int(metrics.step.iloc[event.first])
    if step in {1, *(1 + at for at in result.get("resumed_at_steps") or [])}:
        return "first step", "first of its process"
    before = metrics.iloc[event.first - 1]
    if pd.notna(before.val_loss) and event.n_steps <= 2:
        return "evaluation and checkpoint", f"both came after step {int(before.step)}"
    seen = [look for look in looks if _around(event, metrics, result, look, looks)]
    for look in seen:
        if look.get("throttle_reasons"):
            return "throttle", ", ".join(look["throttle_reasons"])
    clocks = [look["clock_hz"] for look in looks if look.get("clock_hz")]
    for look in seen:
        if look.get("clock_hz") and look["clock_hz"] < (1 - THRESHOLDS["clock_drop"]) * float(np.median(clocks)):
            return "clock change", f"{look['clock_hz'] / 1e6:,.0f} MHz, median {np.median(clocks) / 1e6:,.0f} MHz"
    loads = [look["load_1min"] for look in looks if look.get("load_1min") is not None]
    for look in seen:
        if look.get("load_1min") is not None and look["load_1min"] > float(np.median(loads)) + 1:
            return "other processes", f"load {look['load_1min']:.1f}, median {np.median(loads):.1f}"
    others = ((result.get("machine") or {}).get("between") or {}).get("others_cores") or 0.0
    company = f"; over the run other processes kept {others:.1f} cores busy" if others > BUSY_CORES else ""
    return UNEXPLAINED, ("nothing unusual was seen" if seen else "nobody looked at that moment") + company


def _around(event: Any, metrics: pd.DataFrame, result: dict[str, Any], look: dict, looks: list[dict]) -> bool:
    """Whether a look fell near the event; evaluations before it are counted at their mean time."""
    evaluations = max(int(metrics.val_loss.notna().sum()), 1)
    pause = ((result.get("eval_s") or 0.0) + (result.get("checkpoint_s") or 0.0)) / evaluations
    done = metrics.iloc[: event.first + event.n_steps]
    until = float(done.step_time_s.sum()) + pause * int(done.val_loss.notna().sum())
    since = until - float(done.step_time_s.iloc[event.first :].sum())
    gap = float(np.median(np.diff([one["at_s"] for one in looks]))) if len(looks) > 1 else 1.0
    return since - gap <= look["at_s"] <= until + gap
