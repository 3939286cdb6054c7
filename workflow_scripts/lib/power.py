"""How many seeds would decide what is undecided, if the effect and the noise are what was seen."""

import math
from collections.abc import Callable

from scipy import special

ALPHA = 0.05
POWER = 0.8
MOST_SEEDS = 200


def seeds_to_decide(
    effect: float, noise: float, margin: float, alpha: float = ALPHA, power: float = POWER
) -> int | None:
    """The fewest seeds that tell a paired effect from none, or show it to be no larger than the margin.

    The power against none is that of the two-sided t test by the noncentral t (Cohen 1988, chapter 2); that of the
    equivalence is the two one-sided tests' (Schuirmann 1987), by its bound from below, the sum of both.

    Args:
        effect: mean difference of logarithms.
        noise: standard deviation of the differences over seeds.
        margin: largest difference of logarithms that is called none.
        alpha: of either test.
        power: chance of deciding.

    Returns:
        The number of seeds, None if more than `MOST_SEEDS`.
    """
    if noise == 0:
        return 2

    def differs(n: int) -> bool:
        reach, away = float(special.stdtrit(n - 1, 1 - alpha / 2)), abs(effect) / noise * math.sqrt(n)
        return 1 - _below(n, away, reach) + _below(n, away, -reach) >= power

    def same(n: int) -> bool:
        reach = float(special.stdtrit(n - 1, 1 - alpha))
        ends = ((margin - effect) / noise * math.sqrt(n), (margin + effect) / noise * math.sqrt(n))
        return 1 - sum(_below(n, away, reach) for away in ends) >= power

    tests = [differs, same] if abs(effect) < margin else [differs]
    found = [n for n in (_fewest(test) for test in tests) if n is not None]
    return min(found, default=None)


def _below(n: int, away: float, reach: float) -> float:
    """The chance that t of n seeds, whose mean lies `away` of its errors from zero, is below `reach`."""
    chance = float(special.nctdtr(n - 1, away, reach))
    return (0.0 if reach < away else 1.0) if math.isnan(chance) else chance  # far out the series gives no number


def _fewest(enough: Callable[[int], bool]) -> int | None:
    """Halves the seeds from 2 to `MOST_SEEDS` down to the fewest that are enough; more never do less."""
    low, high = 2, MOST_SEEDS
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def detectable(noise: float, n: int, alpha: float = ALPHA) -> float:
    """The ratio below which `n` seeds on either side decide nothing: their noise floor, as a fraction."""
    if n < 2:
        return math.inf
    return math.expm1(noise * math.sqrt(2 / n) * float(special.stdtrit(2 * (n - 1), 1 - alpha / 2)))
