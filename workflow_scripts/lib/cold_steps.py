"""What the first steps of a process would do to a measurement, and when compiling has paid for itself.

Both are read off cells that were timed anyway: nothing is measured for them.
"""

from typing import Any

import numpy as np
import pandas as pd

DISCARDED = (0, 1, 2, 5)
MEASURED_STEPS = 10  # as many as the published measurements took after their warm-up
WARM_UP_COLUMNS = (
    "device cell model precision execution mode n_discarded n_measured mean_s std_s cv median_s steady_s mean_ratio "
    "median_ratio first_step_s extra_s n_cold steps_per_sample record"
).split()
EXECUTION_COLUMNS = (
    "device model batch_size sequence_length precision mode execution step_time_s eager_step_time_s speedup compile_s "
    "start_s eager_start_s pays_after_steps pays_after_s cell record"
).split()


def warm_up_rows(record: dict[str, Any], path: str) -> list[dict[str, Any]]:
    """What ten steps would have reported after 0, 1, 2 and 5 discarded ones, beside the steady time.

    `steady_s` is the median of the cell's warm samples; `extra_s` by how much the cold steps together exceed as many
    steady ones. Samples that are means over blocks of steps count as one each, see `steps_per_sample`.
    """
    cell, result = record["spec"], record["result"] or {}
    cold, warm = result.get("cold_s") or [], result.get("samples_s") or []
    in_order = [*cold, *warm]
    if not warm:
        return []
    steady = float(np.median(warm))
    rows = []
    for n in (n for n in DISCARDED if n + MEASURED_STEPS <= len(in_order)):
        seen = np.asarray(in_order[n : n + MEASURED_STEPS])
        mean, std = float(seen.mean()), float(seen.std(ddof=1))
        rows.append(
            {
                "device": cell["device"]["id"],
                "cell": cell["id"],
                "model": cell["name"],
                "precision": cell["step"]["precision"],
                "execution": cell["step"]["execution"],
                "mode": cell["mode"],
                "n_discarded": n,
                "n_measured": len(seen),
                "mean_s": mean,
                "std_s": std,
                "cv": std / mean,
                "median_s": float(np.median(seen)),
                "steady_s": steady,
                "mean_ratio": mean / steady,
                "median_ratio": float(np.median(seen)) / steady,
                "first_step_s": in_order[0],
                "extra_s": float(np.sum(cold)) - len(cold) * steady,
                "n_cold": len(cold),
                "steps_per_sample": result.get("block_size"),
                "record": path,
            }
        )
    return rows


def execution_rows(cells: pd.DataFrame) -> list[dict[str, Any]]:
    """Compiled and graphed cells beside the eager cell of the same work, and the step from which they are ahead.

    What starting costs is the first step less a steady one: it has all that happens once, compiling and capturing
    included. A way that is no faster never pays for it, and has no such step.
    """
    if not len(cells):
        return []
    keys = ["device", "model", "batch_size", "sequence_length", "precision", "mode"]
    timed = cells[(cells.status == "ok") & (cells.process == 1) & (cells.attention == "auto")]
    timed = timed[timed.step_time_s.notna() & timed.first_step_s.notna()]
    rows = []
    for values, group in timed.groupby(keys, sort=False):
        eager = group[group.execution == "eager"]
        if not len(eager):
            continue
        base = eager.iloc[0]
        for other in group[group.execution != "eager"].to_dict("records"):
            gain_s = base.step_time_s - other["step_time_s"]
            start_s = other["first_step_s"] - other["step_time_s"]
            eager_start_s = base.first_step_s - base.step_time_s
            after = max(0.0, start_s - eager_start_s) / gain_s if gain_s > 0 else None
            rows.append(
                {
                    **dict(zip(keys, values, strict=True)),
                    "execution": other["execution"],
                    "step_time_s": other["step_time_s"],
                    "eager_step_time_s": base.step_time_s,
                    "speedup": base.step_time_s / other["step_time_s"],
                    "compile_s": other["compile_s"],
                    "start_s": start_s,
                    "eager_start_s": eager_start_s,
                    "pays_after_steps": None if after is None else int(np.ceil(after)),
                    "pays_after_s": None if after is None else other["first_step_s"] + after * other["step_time_s"],
                    "cell": other["cell"],
                    "record": other["record"],
                }
            )
    return rows
