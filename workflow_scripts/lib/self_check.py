"""The self-check of synchronisation: one launch of twice the work must take about twice as long.

A clock that sees only launches gives about 1, however large the work is. So does, for small work, a disturbed machine,
where the wait for a processor outlasts the work; therefore a ratio that is too small is tried again with more of it.
Nothing here knows torch, so a test can pass any clock and any work.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from workflow_scripts.lib.timing import SYNCHRONISED_RATIOS, Clock, check_synchronised

CHECKS = 3  # the median of so many ratios counts
REPEATS = 3
FACTORS = (1, 4, 16)


def check_clocks(
    run: Callable[[int], None],
    synchronise: Callable[[], None],
    clocks: dict[str, Clock],
    factors: Sequence[int] = FACTORS,
) -> dict[str, Any]:
    """Checks clocks by n against 2n work.

    Args:
        run: makes one launch of work in proportion to its argument, which is at most twice the largest of `factors`.
        synchronise: waits for the device.
        clocks: what is checked, by name.
        factors: how much work is tried, one after the other, until the ratio is large enough.

    Returns:
        `synchronised`: every clock's ratio reaches the lower bound. `ratios` and `factors` by clock: the last one
        tried (a ratio that no clock could resolve is None). `bounds`: a ratio above the upper one means that the
        machine was disturbed, and bars nothing. `reason`: what is wrong, empty if nothing is.
    """
    low, high = SYNCHRONISED_RATIOS
    ratios: dict[str, float | None] = {}
    tried: dict[str, int] = {}
    faults = []
    for name, clock in clocks.items():
        for factor in factors:
            ratio = _ratio(run, synchronise, clock, factor)
            if ratio >= low:
                break
        else:
            faults.append(
                f"not synchronised: twice the work took {ratio:.2f} times as long by the {name} clock, "
                f"where at least {low:g} is expected"
            )
        ratios[name], tried[name] = (ratio if math.isfinite(ratio) else None), factor
    return {
        "synchronised": not faults,
        "ratios": ratios,
        "factors": tried,
        "bounds": [low, high],
        "reason": "; ".join(faults),
    }


def _ratio(run: Callable[[int], None], synchronise: Callable[[], None], clock: Clock, factor: int) -> float:
    found = [
        check_synchronised(lambda scale: run(scale * factor), synchronise, clock, repeats=REPEATS)
        for _ in range(CHECKS)
    ]
    return sorted(found)[CHECKS // 2]
