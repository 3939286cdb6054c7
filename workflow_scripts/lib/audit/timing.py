"""Rules on step times: what the samples of one row, and the phases of one step, say of themselves."""

import math
from collections.abc import Iterator

import pandas as pd
from scipy import stats

from workflow_scripts.lib.audit.findings import Seen, rule, words
from workflow_scripts.lib.audit.frames import (
    LABELS,
    SIZES,
    Row,
    alike,
    alike_rows,
    each,
    first_of,
    has,
    measured,
    neighbours,
    value,
    working,
)
from workflow_scripts.lib.audit.wording import percent, seconds, signed, times
from workflow_scripts.lib.timing import SYNCHRONISED_RATIOS

MIN_SAMPLES = 5
COLD_STD_OVER_MEAN = 0.5
NOISY_CV = 0.05
CV_ROUNDING = 0.01
FALL = 0.05
PHASE_SUM = 0.10
BACKWARD_LOW, BACKWARD_HIGH = 1.2, 4.0
HOST_FLAT, WALL_GROWS = 0.05, 0.20
SYNC_LOW, SYNC_HIGH = SYNCHRONISED_RATIOS
STEP_TIMES = "step_time_s|step_time_mean_s"


@rule(
    severity="warning",
    meaning="Fewer than five samples say nothing of their spread.",
    advice="Take at least five warm samples, or print “spread unknown”; give n beside every time.",
    applies=("step_time_s|step_time_mean_s|timer",),
    needs=("n_samples",),
    MIN_SAMPLES=MIN_SAMPLES,
)
def few_samples(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "n_samples")):
        if row.n_samples < MIN_SAMPLES and row.get("status", "ok") == "ok":
            n = int(row.n_samples)
            yield Seen(row.label, f"n = {n}: spread unknown", {"n_samples": n})


@rule(
    severity="error",
    meaning="A standard deviation above half the mean is a cold first step in the average, not noise.",
    advice="Keep samples in order, report the first step apart, and average only warm ones.",
    applies=("step_time_mean_s", "step_time_std_s"),
    COLD_STD_OVER_MEAN=COLD_STD_OVER_MEAN,
)
def cold_start(table: pd.DataFrame) -> Iterator[Seen]:
    rows = measured(table, "step_time_mean_s", "step_time_std_s")
    for row in each(rows):
        mean, std = row.step_time_mean_s, row.step_time_std_s
        if std <= COLD_STD_OVER_MEAN * mean or _warmed_up(row):
            continue
        numbers = {"cv": std / mean, "mean_s": mean, "std_s": std}
        text = f"std {seconds(std)} is {100 * std / mean:.0f} % of the mean {seconds(mean)}"
        warm = _warm_twin(rows, row)
        n = value(row, "n_samples")
        if warm is not None:
            excess = mean - warm
            n = float(n) if n is not None else 1 + (std / excess) ** 2  # one outlier of n: std = excess √(n − 1)
            first = round(n) * excess
            text += f"; fits n = {round(n)} with one first step {seconds(first)} above the warm {seconds(warm)}"
            numbers |= {"n_inferred": n, "first_step_extra_s": first, "warm_s": warm, "mean_over_warm": mean / warm}
        elif n is not None and n > 1:
            first = std * n / math.sqrt(n - 1)
            text += f"; one first step {seconds(first)} above the rest would do it"
            numbers |= {"first_step_extra_s": first}
        yield Seen(row.label, text, numbers)


def _warmed_up(row: Row) -> bool:
    """Whether the samples are known to leave the first step out."""
    return bool(value(row, "warmup_steps"))


def _warm_twin(rows: pd.DataFrame, row: Row) -> float | None:
    """The mean of the same configuration measured after more warm-up steps, if the table has it."""
    if not has(rows, "warmup_steps"):
        return None
    for group in alike(rows, ("warmup_steps",)):
        if row.index in group.index:
            warmer = group[group.warmup_steps > row.warmup_steps]
            warmer = warmer[warmer.step_time_mean_s < row.step_time_mean_s]
            return None if warmer.empty else float(warmer.step_time_mean_s.min())
    return None


@rule(
    severity="warning",
    meaning="A coefficient of variation above 5 % leaves small differences undecided.",
    advice="Find what moves (clocks, heat, other processes), take more samples, and print the interval of the median.",
    applies=("step_time_mean_s", "step_time_std_s"),
    NOISY_CV=NOISY_CV,
)
def noisy(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "step_time_mean_s", "step_time_std_s")):
        cv = row.step_time_std_s / row.step_time_mean_s
        if cv > NOISY_CV and (cv <= COLD_STD_OVER_MEAN or _warmed_up(row)):
            yield Seen(row.label, f"CV {100 * cv:.2f} %", {"cv": cv})


@rule(
    severity="note",
    meaning="A mean with a spread and n, but without an interval, hides how well it is known.",
    advice="Print the 95 % interval; judge differences by it, not by the CV alone.",
    applies=("step_time_mean_s", "step_time_std_s", "n_samples"),
)
def interval_missing(table: pd.DataFrame) -> Iterator[Seen]:
    if has(table, "step_time_low_s"):
        return
    for row in each(measured(table, "step_time_mean_s", "step_time_std_s", "n_samples")):
        if row.n_samples > 1:
            half = stats.t.ppf(0.975, row.n_samples - 1) * row.step_time_std_s / math.sqrt(row.n_samples)
            text = f"n = {row.n_samples:.0f} gives ±{seconds(half)} at 95 % ({100 * half / row.step_time_mean_s:.1f} %)"
            yield Seen(row.label, text, {"half_width_s": half, "relative": half / row.step_time_mean_s})


@rule(
    severity="error",
    meaning="A printed coefficient of variation must be the printed deviation over the printed mean.",
    advice="Compute statistics once, from the samples.",
    applies=("cv_percent", "step_time_mean_s", "step_time_std_s"),
    CV_ROUNDING=CV_ROUNDING,
)
def printed_cv(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "cv_percent", "step_time_mean_s", "step_time_std_s")):
        cv = 100 * row.step_time_std_s / row.step_time_mean_s
        if abs(cv - row.cv_percent) > CV_ROUNDING * max(1, cv):
            yield Seen(row.label, f"CV {row.cv_percent} % printed, {cv:.2f} % by its own columns", {"cv_percent": cv})


@rule(
    severity="error",
    meaning="A larger configuration that takes less time was measured cold, contaminated, or not at all.",
    advice="Warm up every cell, shuffle their order, and measure both cells again in fresh processes.",
    applies=("step_time_s|step_time_mean_s|train_s",),
    FALL=FALL,
)
def time_falls(table: pd.DataFrame) -> Iterator[Seen]:
    time = first_of(table, ("step_time_s", "step_time_mean_s"))
    if time is None:
        return
    for axis in SIZES:
        for smaller, larger in neighbours(working(table), axis, time):
            least, most = _surely(smaller, time, "low"), _surely(larger, time, "high")
            if most < (1 - max(FALL, value(smaller, "noise_floor") or 0)) * least:
                cold = "; it is the table's first cell" if _first(table, smaller) else ""
                text = (
                    f"takes {seconds(smaller[time])}, more than the {seconds(larger[time])} of {larger.label}, "
                    f"whose {words(axis)} is {larger[axis]:,.0f} instead of {smaller[axis]:,.0f}{cold}"
                )
                numbers = {"ratio": larger[time] / smaller[time], "smaller_s": smaller[time], "larger_s": larger[time]}
                yield Seen(smaller.label, text, numbers)


def _surely(row: Row, time: str, end: str) -> float:
    """The end of the row's interval, or its time where it has none."""
    found = value(row, f"step_time_{end}_s")
    return float(row[time]) if found is None else float(found)


def _first(table: pd.DataFrame, row: Row) -> bool:
    """Whether no other configuration stands before the row's in the table's order."""
    before = table.loc[: row.index].iloc[:-1]
    same = [column for column in (*LABELS, "n_embd", "sequence_length", "batch_size") if column in table.columns]
    return all(value(other, column) == value(row, column) for other in each(before) for column in same)


def phases(table: pd.DataFrame) -> Iterator[tuple[str, dict[str, float]]]:
    """For each configuration the times of its phases by mode: (label, {'forward': s, 'backward': s, …})."""
    time = first_of(table, ("step_time_s", "step_time_mean_s"))
    if time is None or "mode" not in table.columns:
        return
    for group in alike_rows(measured(table, time, "mode"), ("mode",)):
        found = {row["mode"]: row[time] for row in group}
        if "forward_backward" in found and "forward" in found:
            found.setdefault("backward", found["forward_backward"] - found["forward"])
        yield group[0].label, found


@rule(
    severity="error",
    meaning="Backward does two products for each of forward's one: a ratio outside 1.2–4 is a broken clock.",
    advice="Synchronise before and after each phase; the missing time of one is in the other.",
    applies=("mode", STEP_TIMES),
    BACKWARD_LOW=BACKWARD_LOW,
    BACKWARD_HIGH=BACKWARD_HIGH,
)
def backward_forward(table: pd.DataFrame) -> Iterator[Seen]:
    for label, found in phases(table):
        if {"forward", "backward"} <= set(found):
            ratio = found["backward"] / found["forward"]
            if not BACKWARD_LOW <= ratio <= BACKWARD_HIGH:
                text = f"backward {seconds(found['backward'])} is {times(ratio)} forward {seconds(found['forward'])}"
                yield Seen(label, text, {"ratio": ratio}, "error" if ratio > 2 * BACKWARD_HIGH else "warning")


@rule(
    severity="warning",
    meaning="Forward, backward and optimizer must sum to the step within 10 %.",
    advice="Bracket each phase by the device's synchronisation, and time the whole step as well.",
    applies=("mode", STEP_TIMES),
    PHASE_SUM=PHASE_SUM,
)
def phase_sum(table: pd.DataFrame) -> Iterator[Seen]:
    modes = set(table["mode"].dropna())
    if len(modes) == 1 and modes & {"forward_backward", "step"} and not has(table, "cell"):
        text = f"cannot be checked: only {modes.pop().replace('_', ' and ')} was timed, not its phases"
        yield Seen("all rows", text, {"n_modes": 1}, "note")
    for label, found in phases(table):
        parts = [found.get("forward_backward", found.get("forward", 0) + found.get("backward", math.nan))]
        parts.append(found.get("optimizer", math.nan))
        if "step" in found and not math.isnan(sum(parts)):
            ratio = sum(parts) / found["step"]
            if abs(ratio - 1) > PHASE_SUM:
                text = (
                    f"phases sum to {seconds(sum(parts))}, the step takes {seconds(found['step'])} ({percent(ratio)})"
                )
                yield Seen(label, text, {"ratio": ratio})


@rule(
    severity="error",
    meaning="A host time that stays flat while the synchronised time grows is the time to launch work, not to do it.",
    advice="Read the flat part as launch-bound and the growing part as compute; synchronising adds microseconds.",
    applies=("host_time_s", STEP_TIMES),
    HOST_FLAT=HOST_FLAT,
    WALL_GROWS=WALL_GROWS,
)
def launch_bound(table: pd.DataFrame) -> Iterator[Seen]:
    time = first_of(table, ("step_time_s", "step_time_mean_s"))
    if time is None:
        return
    for axis in ("sequence_length", "batch_size"):
        pairs = list(neighbours(table, axis, "host_time_s", time))
        if not pairs:
            continue
        rows = [pairs[0][0], *(larger for _, larger in pairs)]
        host = [float(row.host_time_s) for row in rows]
        wall = [float(row[time]) for row in rows]
        if max(host) / min(host) - 1 <= HOST_FLAT and wall[-1] / wall[0] - 1 > WALL_GROWS:
            gaps = [1e3 * (w - h) for w, h in zip(wall, host, strict=True)]
            text = (
                f"host time stays at {seconds(host[0])} while wall time goes {seconds(wall[0])} → {seconds(wall[-1])}: "
                f"gaps {', '.join(signed(gap) for gap in gaps)} ms; launch-bound below, compute-bound above"
            )
            numbers = {"gaps_ms": gaps, "wall_ratio": wall[-1] / wall[0], "host_ratio": max(host) / min(host)}
            yield Seen(f"{rows[0].label} → {rows[-1].label}", text, numbers)


@rule(
    severity="warning",
    meaning="A timer whose synchronisation nobody tested may time the queue instead of the work.",
    advice="Time n and 2n products: a ratio near 2 proves that the timer waits.",
    applies=("sync_check_ratio",),
    needs=("sync_check_ratio",),
    SYNC_LOW=SYNC_LOW,
    SYNC_HIGH=SYNC_HIGH,
)
def synchronisation(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "sync_check_ratio")):
        if not SYNC_LOW <= row.sync_check_ratio <= SYNC_HIGH:
            low = row.sync_check_ratio < SYNC_LOW
            why = "the timer does not wait" if low else "the machine was disturbed"
            text = f"twice the work takes {times(row.sync_check_ratio)} the time: {why}"
            yield Seen(row.label, text, {"sync_check_ratio": row.sync_check_ratio}, "error" if low else None)
