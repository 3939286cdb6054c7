"""Why step times vary, as far as what was recorded beside them tells, and what follows for whoever measures."""

from collections.abc import Iterator

import pandas as pd

from workflow_scripts.lib.quantities import listing, percent, plural

UNSTEADY = 0.05  # a coefficient of variation above this is asked for its cause
BUSY_CORES = 0.5  # processor cores that others kept busy, from which on they may have disturbed


def causes(cells: pd.DataFrame, hardware: dict[str, str]) -> Iterator[str]:
    """Two sentences for each device: how many cells vary much and what they have in common; and what to do."""
    timed = cells[(cells.status == "ok") & cells.step_time_std_s.notna()] if len(cells) else cells
    for device, rows in timed.groupby("device", sort=False) if len(timed) else ():
        cv = rows.step_time_std_s / rows.step_time_mean_s
        unsteady = rows[cv > UNSTEADY]
        where = hardware.get(str(device), str(device))
        if unsteady.empty:
            yield f"None of {plural(len(rows), 'cell')} on {where} varies by more than {percent(UNSTEADY)}."
            continue
        found = {words: int(mask.sum()) for words, mask in _marks(unsteady).items()}
        told = listing(f"{n:,} {words}" for words, n in found.items())
        yield (
            f"Of {plural(len(rows), 'cell')} on {where}, {len(unsteady):,} vary by more than {percent(UNSTEADY)}; of "
            f"these {told or 'nothing was recorded that could be a cause'}."
        )
        captured = cv[rows.execution == "graphed"]
        main = max(found, key=lambda words: found[words], default=None)
        if main is None or 2 * found[main] <= len(unsteady):
            yield "No one cause accounts for most of them, so only more samples make their medians sure."
        elif main == LAUNCHES:
            seen = f", which here vary by at most {percent(captured.max())}" if len(captured) else ""
            yield f"What would steady most of them is fewer launches: steps captured as a graph{seen}."
        else:
            yield ADVICE[main]


LAUNCHES = "wait for launches by the cost model"
OTHERS = "ran while other processes kept processors busy"
THROTTLED = "ran on a throttled device"
ADVICE = {
    OTHERS: "What would steady most of them is a machine with nothing else to do.",
    THROTTLED: "What would steady most of them is a device that keeps its clock: cooler, or held to a lower one.",
}


def _marks(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Which rows have which possible cause, for causes that were recorded at all."""
    marks = {}
    if rows.predicted_bound.notna().any():
        marks[LAUNCHES] = rows.predicted_bound == "launch"
    if rows.others_cores.notna().any():
        marks[OTHERS] = rows.others_cores > BUSY_CORES
    if rows.throttle.notna().any():
        marks[THROTTLED] = rows.throttle.notna() & (rows.throttle != "none")
    return marks
