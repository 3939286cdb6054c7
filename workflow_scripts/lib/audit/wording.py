"""Numbers as the audit prints them: few digits, a unit, a real minus sign."""

import math

from workflow_scripts.lib.quantities import LARGE


def percent(ratio: float) -> str:
    """A ratio as a signed change: 2.207 -> `+120.7 %`."""
    return signed(100 * (ratio - 1)) + " %"


def signed(value: float) -> str:
    """A value with its sign and few digits: -0.012 -> `−0.012`; below a thousandth it is 0."""
    if abs(value) < 1e-3:
        return "±0"
    text = f"{abs(value):.1f}" if abs(value) >= 1 else f"{abs(value):.2g}"
    return ("−" if value < 0 else "+") + text


def times(ratio: float) -> str:
    """A ratio as a factor: 8.37 -> `8.4×`."""
    return f"{ratio:.2f}×" if ratio < 3 else f"{ratio:.1f}×" if ratio < 100 else f"{ratio:,.0f}×"


def scaled(value: float, unit: str) -> str:
    """A value with a decimal prefix: (0.69e12, 'FLOP/s') -> `0.69 TFLOP/s`, with three significant digits."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    for factor, prefix in LARGE[:-1]:
        if abs(value) >= factor * (0.5 if factor == 1e12 else 1):
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def seconds(value: float) -> str:
    """A duration: `0.408 s`, `31.5 ms`, `22.8 µs`."""
    for factor, unit in ((1, "s"), (1e-3, "ms")):
        if abs(value) >= factor / 10:
            return f"{value / factor:.4g} {unit}"
    return f"{value * 1e6:.4g} µs"


def count(value: float) -> str:
    """A count: `3,406.8M` above a million, else with thousands marked."""
    return f"{value / 1e6:,.1f}".removesuffix(".0") + "M" if abs(value) >= 1e6 else f"{value:,.0f}"


def rows(number: float) -> str:
    """A number of rows: `1 row`, `4 rows`."""
    return f"{number:.0f} row" + ("" if number == 1 else "s")


def quantity(value: float, column: str) -> str:
    """A value of `column` in the unit that the column's name ends with."""
    if column.endswith("_bytes"):
        return scaled(value, "B")
    if column.endswith("_s") and not column.endswith("_per_s"):
        return seconds(value)
    for end, unit in (("_tokens_per_s", "tokens/s"), ("_flop_per_s", "FLOP/s"), ("_bytes_per_s", "B/s")):
        if column.endswith(end):
            return scaled(value, unit)
    if column.startswith("n_"):
        return count(value)
    return f"{value:.4g}"
