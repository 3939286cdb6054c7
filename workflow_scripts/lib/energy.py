"""Energy of a step, where the device counts it: steps are repeated between two ticks of the device's own counter.

Sampling may end within a tick of it (NVML's moves some ten times a second), so energy has its own second of steps. In
it nobody looks at the counter: a look can take milliseconds, in which the device rests and goes on using power. In a
virtual machine with an H200, steps of 6 ms with a look after each took 11.
"""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

FOR_S = 1.0
STILL_S = 2.0  # a counter that has not moved for so long does not count
BURST_S = 0.01  # steps between two looks at the counter
UNSEEN_BURST_S = 0.25  # steps in a row where nobody looks: one that is waited for can take longer than its neighbours


def count_energy(
    run: Callable[[], None],
    synchronise: Callable[[], None],
    read: Callable[[], float | None],
    *,
    now: Callable[[], float] = time.perf_counter,
    for_s: float = FOR_S,
) -> dict[str, Any] | None:
    """Repeats warm steps and reads the energy counter around them.

    Args:
        run: makes one step; may return before the device has done it.
        synchronise: waits for the device.
        read: joules so far, or None where nothing counts them.
        now: the host's time in s.
        for_s: how long at least.

    Returns:
        `energy_j` of `n_steps` steps that took `elapsed_s`; None where it is not counted. It is the whole device's,
        whatever else used it.
    """
    steps = _Steps(run, synchronise, now)
    start = _next_tick(steps, read)
    if start is None:
        return None
    while now() - start.at_s < for_s:
        steps.repeat(UNSEEN_BURST_S)
    end = _next_tick(steps, read)
    if end is None:
        return None
    return {
        "energy_j": end.joules - start.joules,
        "n_steps": end.n_steps - start.n_steps,
        "elapsed_s": end.at_s - start.at_s,
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Tick:
    """A moment at which the counter moved, and how many steps had been made by then."""

    joules: float
    at_s: float
    n_steps: int


class _Steps:
    """Makes steps in bursts, and counts them."""

    def __init__(self, run: Callable[[], None], synchronise: Callable[[], None], now: Callable[[], float]):
        self.run, self.synchronise, self.now = run, synchronise, now
        self.n_steps, self.step_s = 0, math.inf

    def repeat(self, for_s: float) -> None:
        """Makes as many steps as take this long by the pace of the last ones, at least one."""
        begun, burst = self.now(), max(1, int(for_s / self.step_s))
        for _ in range(burst):
            self.run()
        self.synchronise()
        self.n_steps += burst
        self.step_s = max(self.now() - begun, 1e-9) / burst


def _next_tick(steps: _Steps, read: Callable[[], float | None]) -> _Tick | None:
    """Makes steps until the counter moves up; None where it does not."""
    before, since = read(), steps.now()
    while before is not None:
        steps.repeat(BURST_S)
        joules, at_s = read(), steps.now()
        if joules is None or joules < before:
            return None
        if joules > before:
            return _Tick(joules=joules, at_s=at_s, n_steps=steps.n_steps)
        if at_s - since > STILL_S:
            return None
    return None
