"""Energy of a step, where the device counts it: steps are repeated between two ticks of the device's own counter.

Sampling may end within a tick of it (NVML's moves some ten times a second), so energy has its own second of steps.
"""

import time
from collections.abc import Callable
from typing import Any

FOR_S = 1.0
STILL_S = 2.0  # a counter that has not moved for so long does not count
BURST_S = 0.01  # steps between two looks at the counter


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
    tick = read()
    if tick is None:
        return None
    burst, n_steps, moved_at = 1, 0, now()
    start: tuple[float, float] | None = None  # joules and time at the first tick
    while True:
        begun = now()
        for _ in range(burst):
            run()
        synchronise()
        n_steps, ended = n_steps + burst, now()
        burst = max(1, min(4 * burst, int(burst * BURST_S / max(ended - begun, 1e-9))))
        joules = read()
        if joules is None or joules < tick:
            return None
        if joules == tick:
            if ended - moved_at > STILL_S:
                return None
            continue
        tick, moved_at = joules, ended
        if start is None:
            start, n_steps = (joules, ended), 0
        elif ended - start[1] >= for_s:
            return {"energy_j": joules - start[0], "n_steps": n_steps, "elapsed_s": ended - start[1]}
