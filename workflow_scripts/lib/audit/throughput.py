"""Rules on rates: no device computes faster than it can, or suddenly eight times slower than beside it."""

from collections.abc import Iterator

import pandas as pd

from workflow_scripts.lib.audit.findings import Seen, rule
from workflow_scripts.lib.audit.frames import (
    SIZES,
    Row,
    alike_rows,
    each,
    first_of,
    measured,
    neighbours,
    value,
    work,
    working,
)
from workflow_scripts.lib.audit.wording import scaled, seconds, times

STEP_TIME = ("step_time_s", "step_time_mean_s")
FLOP_SLACK = 1.05
BYTE_SLACK = 1.2
COLLAPSE = 3.0
FLAT_WORK = 16.0
FLAT_LAG = 4.0


@rule(
    severity="error",
    doubts="time",
    meaning="A rate above what the device can do is a clock that did not wait.",
    advice="Bar the cell: neither rank it nor use it as a denominator; synchronise and measure again.",
    applies=("achieved_flop_per_s|flops|bytes_moved", "step_time_s|step_time_mean_s"),
    needs=("peak_flop_per_s|peak_bytes_per_s",),
    FLOP_SLACK=FLOP_SLACK,
    BYTE_SLACK=BYTE_SLACK,
)
def impossible_rate(table: pd.DataFrame) -> Iterator[Seen]:
    time = first_of(table, STEP_TIME)
    for row in each(table):
        for what, peak, unit, slack in (
            ("flops", "peak_flop_per_s", "FLOP/s", FLOP_SLACK),
            ("bytes_moved", "peak_bytes_per_s", "B/s", BYTE_SLACK),
        ):
            rate = _rate(row, what, time)
            limit = value(row, peak)
            if rate is not None and limit is not None and rate > slack * limit:
                text = f"implies {scaled(rate, unit)}, {times(rate / limit)} the device's {scaled(limit, unit)}"
                yield Seen(row.label, text, {"rate": rate, "limit": limit, "ratio": rate / limit, "unit": unit})


def _rate(row: Row, what: str, time: str | None) -> float | None:
    if what == "flops" and value(row, "achieved_flop_per_s") is not None:
        return float(row.achieved_flop_per_s)
    if time is None or value(row, what) is None or value(row, time) is None:
        return None
    return float(row[what]) / float(row[time])


@rule(
    severity="error",
    meaning="A model FLOPs utilisation above 100 % is a wrong peak, a wrong count, or a wrong clock.",
    advice="State the peak by device, dtype and sparsity, and the counting rule; bar the row until they agree.",
    applies=("mfu",),
)
def impossible_utilisation(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "mfu")):
        if row.mfu > 1:
            yield Seen(row.label, f"MFU {100 * row.mfu:.0f} %", {"mfu": row.mfu})


@rule(
    severity="error",
    doubts="time",
    meaning="FLOP/s that fall more than threefold beside the next smaller cell mean oversubscribed memory or company.",
    advice="Compare peak memory with the device's own, lower the batch, measure again; leave the cell out of fits.",
    applies=("step_time_s|step_time_mean_s", "n_params|flops_per_token|flops"),
    COLLAPSE=COLLAPSE,
)
def rate_collapse(table: pd.DataFrame) -> Iterator[Seen]:
    time = first_of(table, STEP_TIME)
    if time is None:
        return
    for axis in SIZES:
        for smaller, larger in neighbours(working(table), axis, time):
            known = work(smaller), work(larger)
            if known[0] is None or known[1] is None or known[0][1] != known[1][1] or known[1][0] <= known[0][0]:
                continue
            rates = known[0][0] / smaller[time], known[1][0] / larger[time]
            if rates[0] > COLLAPSE * rates[1]:
                excess, expected = rates[0] / rates[1], smaller[time] * known[1][0] / known[0][0]
                text = (
                    f"{times(excess)} slower than scaling from {smaller.label} predicts ({seconds(expected)} expected, "
                    f"{seconds(larger[time])} measured; {scaled(rates[1], 'FLOP/s')} against "
                    f"{scaled(rates[0], 'FLOP/s')}): likely oversubscribed memory"
                )
                numbers = {"excess": excess, "expected_s": expected, "measured_s": larger[time]}
                numbers |= {"flop_per_s": rates[1], "flop_per_s_smaller": rates[0], "work": known[0][1]}
                yield Seen(larger.label, text, numbers)


@rule(
    severity="error",
    doubts="time",
    meaning="A phase whose time hardly grows while its work and the other phase do was timed as it was queued.",
    advice="Synchronise at both ends of each phase: what forward left in the queue is counted in backward.",
    applies=("step_time_s|step_time_mean_s", "mode", "sequence_length|batch_size"),
    FLAT_WORK=FLAT_WORK,
    FLAT_LAG=FLAT_LAG,
)
def flat_phase(table: pd.DataFrame) -> Iterator[Seen]:
    time = first_of(table, STEP_TIME)
    if time is None:
        return
    for axis in ("sequence_length", "batch_size"):
        for group in alike_rows(measured(table, axis, time, "mode"), (*SIZES[axis], "mode")):
            ends = _ends(group, axis)
            growth = {mode: last[time] / first[time] for mode, (first, last) in ends.items()}
            slowest, fastest = min(growth, key=growth.__getitem__), max(growth, key=growth.__getitem__)
            first, last = ends[slowest]
            size, flat = last[axis] / first[axis], growth[slowest]
            done = size**2 if axis == "sequence_length" else size
            if done >= FLAT_WORK and growth[fastest] > FLAT_LAG * flat:
                text = (
                    f"{slowest} grows {times(flat)} ({seconds(first[time])} → {seconds(last[time])}) over "
                    f"{times(done)} the work, {fastest} {times(growth[fastest])}"
                )
                numbers = {"growth": flat, "other_growth": growth[fastest], "size_ratio": size}
                yield Seen(last.label, text, numbers)


def _ends(rows: list[Row], axis: str) -> dict[str, tuple[Row, Row]]:
    """The smallest and the largest row of each mode along an axis."""
    by_mode: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row[axis]):
        by_mode.setdefault(row["mode"], []).append(row)
    return {mode: (found[0], found[-1]) for mode, found in by_mode.items()}
