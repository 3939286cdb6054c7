"""Numbers as a reader sees them: with units, to the digits that carry meaning, never a zero for what is missing."""

import math
from collections.abc import Iterable

MISSING = "not measured"
SPACE = "\N{NO-BREAK SPACE}"
_SECONDS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
LARGE = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_BYTES_PER_S = ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1.0, "B/s"))
_SCALES = {
    "bytes/s": _BYTES_PER_S,
    "s": _SECONDS,
    "bytes": _BYTES,
    "FLOP/s": LARGE,
    "FLOPs": LARGE,
    "tokens/s": LARGE,
    "tokens": LARGE,
}


def is_missing(value: object) -> bool:
    """Whether there is no value: None, an empty text, or a number that is not finite."""
    return value is None or value == "" or (isinstance(value, float) and not math.isfinite(value))  # NaN of pandas, too


def digits(value: float, significant: int = 3) -> str:
    """Prints a number to at least `significant` digits, and all those before the point: 0.0123, 12.3, 12,345."""
    if value == 0:
        return "0"
    decimals = max(0, significant - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    if decimals and sum(c.isdigit() for c in text.lstrip("-0.").replace(",", "")) > significant:
        text = f"{value:,.{decimals - 1}f}"  # 9.996 rounds up to a digit more
    return text.replace("-", "\N{MINUS SIGN}")


def unit_for(values: Iterable[float | None], unit: str) -> tuple[float, str]:
    """Finds the scale, and its name, in which the middle one of `values` reads best: (0.001, "ms") for 0.02 s."""
    present = sorted(abs(value) for value in values if not is_missing(value) and value != 0)
    scales = _SCALES.get(unit)
    if scales is None:
        return 1.0, unit
    middle = present[len(present) // 2] if present else 1.0
    # Minutes and up only once there are two of them, so that 90 s stays 90 s.
    large_enough = (pair for pair in scales if middle >= pair[0] * (2 if unit == "s" and pair[0] >= 60 else 0.9995))
    scale, name = next(large_enough, scales[-1])
    if scales is LARGE:
        name = f"{name} {unit}".strip() if unit.startswith("tokens") else name + unit
    return scale, name


def quantity(value: float | None, unit: str, significant: int = 3) -> str:
    """Prints one value with its unit: 31.5 ms, 2.30 GiB, 33.0k tokens/s; or "not measured"."""
    if is_missing(value):
        return MISSING
    scale, name = unit_for([float(value)], unit)
    text = digits(value / scale, significant)
    return f"{text}{name.replace(' ', SPACE)}" if " tokens" in name else f"{text}{SPACE}{name}"


def count(value: float | None) -> str:
    """Prints a whole number with separators: 614,400."""
    return MISSING if is_missing(value) else f"{round(value):,}"


def times(value: float | None) -> str:
    """Prints a ratio: 1.31×."""
    return MISSING if is_missing(value) else f"{digits(value)}×"


def percent(fraction: float | None, significant: int = 2) -> str:
    """Prints a fraction as per cent: 0.0081 is 0.81 %."""
    return MISSING if is_missing(fraction) else f"{digits(fraction * 100, significant)}{SPACE}%"


def span(low: float | None, high: float | None, scale: float = 1.0) -> str:
    """Prints an interval, both ends to the same digits: 1.28–1.35; or "spread unknown"."""
    if is_missing(low) or is_missing(high):
        return "spread unknown"
    low, high = low / scale, high / scale
    larger = max(abs(low), abs(high))
    decimals = max(0, 2 - math.floor(math.log10(larger))) if larger > 0 else 0
    return f"{low:,.{decimals}f}–{high:,.{decimals}f}"


def plural(n: int, noun: str, many: str | None = None) -> str:
    """Prints a count with its noun, or with the verb that follows it: 1 cell, 3 cells; 1 holds, 3 hold."""
    return f"{n:,}{SPACE}{noun if n == 1 else many or noun + 's'}"


def listing(items: Iterable[str]) -> str:
    """Joins words as a sentence does: a, b and c."""
    items = list(items)
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1] if items else ""
