"""Times repeated work: every sample kept in order, cold apart from warm, for as long as the median needs.

The rules, in the order in which they apply:

- **A sample** is the time of one step, ended by the device's synchronisation; on a device with events of its own, the
  time between the events after two successive steps (`Clock`). The host then launches steps ahead of those that it
  reads, and lets the device run dry after the first one and before a report alone: a step that is waited for lacks
  what else runs beside its neighbours.
- **Blocks.** Where a step is shorter than 1000 times what the clock can tell apart, one sample is the mean over a block
  of steps that is long enough; `block_size` says how many. The first steps are always timed one by one.
- **Warm-up.** The first sample is cold by definition. Warm-up ends at the first later sample from which three in a row
  (fewer where fewer are left) are no slower than the last half of all samples usually is: its median plus three of its
  scaled median absolute deviations, or plus 2 % where that is more. At most half of the samples are cold. One-sided, so
  that a device that slows down as it heats up keeps its fast start among the warm samples, where the drift can be seen.
- **Stop.** Sampling ends when the 95 % interval of the warm samples' median, read off their order statistics, is
  narrower than the target, or when the time is up. The time counts from the end of the first sample, which may compile.

Nothing here knows torch, so a test can pass any clock and any work.
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from workflow_scripts.lib.specs import MeasureSpec

Stop = Literal["interval", "budget", "max_samples"]

MAX_SAMPLES = 10_000
PILOT_SAMPLES = 5  # timed one by one before a block size is chosen
RESOLUTIONS_PER_SAMPLE = 1000  # so the clock errs by at most 0.1 %
BURST_S = 0.25  # how much a device with events is given at once, ahead of what the host reads
MAD_TO_SIGMA = 1.4826  # of a normal distribution
SLACK = 0.02
CONFIDENCE = 0.95
REPORT_EVERY_S = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Samples:
    """What sampling gave, in s per step and in order: `cold_s` from the very first step on, then `samples_s`, warm.

    `block_size` is the number of steps that each sample after the first `PILOT_SAMPLES` is the mean of. `elapsed_s` is
    the host's time from before the first step to after the last: samples that add up to more than it are wrong.
    """

    cold_s: list[float]
    samples_s: list[float]
    stop: Stop
    block_size: int
    elapsed_s: float


class Clock(Protocol):
    """Takes marks in time. `resolution_s` is the shortest time that it can tell apart."""

    resolution_s: float
    needs_synchronised_marks: bool  # True: a mark is the host's time, so the device must have finished before it

    def mark(self) -> Any:
        """Marks this moment."""

    def seconds(self, start: Any, end: Any) -> float:
        """Time between two marks in s; waits until the device has passed them."""

    def now(self) -> float:
        """The host's time in s, for budgets."""


class HostClock:
    """The host's clock.

    Args:
        read: gives seconds; a test passes its own.
    """

    needs_synchronised_marks = True

    def __init__(self, read: Callable[[], float] = time.perf_counter, resolution_s: float | None = None):
        self.mark = self.now = read
        self.resolution_s = _resolution_s(read) if resolution_s is None else resolution_s

    def seconds(self, start: float, end: float) -> float:
        return end - start


def _resolution_s(read: Callable[[], float], n: int = 20) -> float:
    """Finds the shortest step of a clock, which includes what one reading costs."""
    steps = []
    for _ in range(n):
        start = read()
        while (end := read()) == start:
            pass
        steps.append(end - start)
    return min(steps)


def sample_steps(
    run: Callable[[], None],
    synchronise: Callable[[], None],
    *,
    clock: Clock,
    measure: MeasureSpec,
    report: Callable[[Samples], None] | None = None,
) -> Samples:
    """Runs steps and times them until the median is known well enough or the time is up.

    Args:
        run: makes one step; may return before the device has done it.
        synchronise: waits for the device.
        clock: `HostClock`, or one that marks events in the device's queue.
        measure: when to stop.
        report: called between samples after the first one and about once a second, with what there is so far.

    Returns:
        All samples. `stop` tells why there are no more.
    """
    synchronise()
    started = clock.now()
    values = [_time_block(run, synchronise, clock, 1)]
    sampling_since = last_report = clock.now()
    ahead, burst, block_size, next_check = _Launched(marks=[], block_size=1), 1, 1, 2
    stop: Stop | None = None
    if report is not None:
        report(_split(values, "budget", block_size, clock.now() - started))
    while stop is None:
        if clock.needs_synchronised_marks:
            values.append(_time_block(run, synchronise, clock, block_size))
        else:
            before, ahead = ahead, _launch(run, clock, block_size, burst)
            values += before.times_s(clock)
        now = clock.now()
        if len(values) + len(ahead.marks[1:]) >= PILOT_SAMPLES and block_size == burst == 1:
            step_s = float(np.median(values[-3:]))
            block_size = _block_size(step_s, clock.resolution_s)
            if not clock.needs_synchronised_marks:
                burst = max(1, int(BURST_S / (step_s * block_size)))
        if now - sampling_since >= measure.max_seconds:
            stop = "budget"
        elif len(values) >= MAX_SAMPLES:
            stop = "max_samples"
        elif len(values) >= next_check:
            next_check = len(values) + 1 + len(values) // 20  # the check sorts: not at every one of many samples
            warm = values[count_cold(values) :]
            if len(warm) >= measure.min_samples and relative_interval(warm) <= measure.target_interval:
                stop = "interval"
        if report is not None and stop is None and now - last_report >= REPORT_EVERY_S:
            report(_split(values, "budget", block_size, now - started))
            last_report = clock.now()
    values += ahead.times_s(clock)
    return _split(values, stop, block_size, clock.now() - started)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Launched:
    """Marks before, between and after blocks of steps that were launched; those of nothing are none."""

    marks: list[Any]
    block_size: int

    def times_s(self, clock: Clock) -> list[float]:
        """Waits for the blocks; gives the mean time of a step of each."""
        return [clock.seconds(a, b) / self.block_size for a, b in itertools.pairwise(self.marks)]


def _launch(run: Callable[[], None], clock: Clock, block_size: int, burst: int) -> _Launched:
    """Launches a burst of successive blocks."""
    marks = [clock.mark()]
    for _ in range(burst):
        for _ in range(block_size):
            run()
        marks.append(clock.mark())
    return _Launched(marks=marks, block_size=block_size)


def _time_block(run: Callable[[], None], synchronise: Callable[[], None], clock: Clock, n: int) -> float:
    """Mean time of one of `n` steps, from a synchronised start to a synchronised end."""
    start = clock.mark()
    for _ in range(n):
        run()
    if clock.needs_synchronised_marks:
        synchronise()
    end = clock.mark()
    if not clock.needs_synchronised_marks:
        synchronise()
    return clock.seconds(start, end) / n


def _block_size(step_s: float, resolution_s: float) -> int:
    if step_s <= 0.0:  # the clock did not see it at all
        return RESOLUTIONS_PER_SAMPLE
    return max(1, math.ceil(RESOLUTIONS_PER_SAMPLE * resolution_s / step_s))


def _split(values: Sequence[float], stop: Stop, block_size: int, elapsed_s: float) -> Samples:
    n_cold = count_cold(values)
    if block_size > 1:  # samples of single steps are not mixed with means over blocks
        n_cold = min(max(n_cold, PILOT_SAMPLES), len(values))
    return Samples(
        cold_s=list(values[:n_cold]),
        samples_s=list(values[n_cold:]),
        stop=stop,
        block_size=block_size,
        elapsed_s=elapsed_s,
    )


def count_cold(values: Sequence[float]) -> int:
    """Counts the samples of the warm-up, at least one; see the module's docstring for the rule."""
    x = np.asarray(values)
    if len(x) < 2:
        return len(x)
    last_half = x[len(x) // 2 :]
    median = np.median(last_half)
    spread = MAD_TO_SIGMA * np.median(np.abs(last_half - median))
    usual = x <= median + max(3.0 * spread, SLACK * median)
    at_most = len(x) // 2
    return next((i for i in range(1, at_most) if usual[i : i + 3].all()), at_most)


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Gives the 95 % interval of the median from order statistics, with no assumption on the distribution.

    The l-th smallest and the l-th largest of n samples enclose the median with probability 1 − 2 P(X < l), X binomial
    (n, 1/2); the largest l with at least 95 % is taken (Conover, Practical Nonparametric Statistics, section 3.2).

    Returns:
        Low and high; None for fewer than six samples, whose whole range does not reach 95 %.
    """
    n = len(values)
    rank = _rank(n)
    if rank < 1:
        return None
    ordered = np.sort(np.asarray(values))
    return float(ordered[rank - 1]), float(ordered[n - rank])


def _rank(n: int) -> int:
    """The largest l with 2 P(X < l) <= 5 %, X binomial (n, 1/2), in whole numbers."""
    allowed = int((1.0 - CONFIDENCE) / 2.0 * 2**60) * 2**n >> 60
    term, total, rank = 1, 0, 0
    while total + term <= allowed:
        total += term
        term = term * (n - rank) // (rank + 1)
        rank += 1
    return rank


def relative_interval(values: Sequence[float]) -> float:
    """Width of the median's 95 % interval as a share of the median; infinite where there is none."""
    interval = median_interval(values)
    median = float(np.median(values)) if len(values) else 0.0
    return (interval[1] - interval[0]) / median if interval and median > 0.0 else math.inf


def check_synchronised(
    run: Callable[[int], None], synchronise: Callable[[], None], clock: Clock, repeats: int = 5
) -> float:
    """Measures how the time of one launch grows with its work: the self-check of a timer.

    Both sizes are one launch each, so a timer that sees only launches gives about 1. (More launches of equal work would
    take longer even for such a timer.)

    Args:
        run: launches work in proportion to its argument, 1 or 2, large enough to outlast its launch by far.
        synchronise: waits for the device.
        clock: the clock to be tested.
        repeats: how often each is timed; the fastest counts.

    Returns:
        Time of twice the work over time of the work: about 2, see `SYNCHRONISED_RATIOS`.
    """
    fastest = []
    for scale in (1, 2):
        run(scale)
        synchronise()
        fastest.append(min(_time_block(lambda s=scale: run(s), synchronise, clock, 1) for _ in range(repeats)))
    return fastest[1] / fastest[0] if fastest[0] > 0.0 else math.inf


SYNCHRONISED_RATIOS = (1.5, 2.7)  # of `check_synchronised`; outside, no time of this device can be believed
