"""How figures look, and how they become SVG files that fit a light page, a dark page and a page of their own.

Matplotlib draws with stand-in colours. On saving, each becomes a CSS variable with a middle tone to fall back on
(`var(--ink, #6c737c)`): inlined in the report a figure takes the page's colours, light or dark, and opened alone it is
readable on both. Text stays text, in the reader's own font. The same input gives the same bytes.
"""

import html
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from workflow_scripts.lib.quantities import LARGE

matplotlib.use("svg")

INK, MUTED, FAINT, WARN = "#0a0001", "#0a0002", "#0a0003", "#0a0004"
# Series colours: apart for readers with any of the common colour deficiencies (after Okabe and Ito, 2008), and in
# lightness close enough to stand on white and on black. Markers repeat the distinction without colour.
SERIES = ("#0b0001", "#0b0002", "#0b0003", "#0b0004", "#0b0005", "#0b0006")
MARKERS = ("o", "s", "^", "D", "v", "P")
_FALLBACK = {
    INK: ("ink", "#6c737c"), MUTED: ("muted", "#828992"), FAINT: ("rule", "#9aa0a8"), WARN: ("warn", "#d0453a"),
    SERIES[0]: ("series-1", "#3f86c9"), SERIES[1]: ("series-2", "#d9682f"), SERIES[2]: ("series-3", "#1fa283"),
    SERIES[3]: ("series-4", "#b963a3"), SERIES[4]: ("series-5", "#a98a22"), SERIES[5]: ("series-6", "#7d8792"),
}  # fmt: skip
WIDTH = 7.6  # inches; 547 points wide in the SVG
MAX_PANELS = 12
MAX_LEGEND = 18
HOLLOW = "barred by the audit"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_STYLE = {
    "axes.edgecolor": FAINT, "axes.grid": True, "axes.labelcolor": MUTED, "axes.labelsize": 8.5, "axes.linewidth": 0.7,
    "axes.spines.right": False, "axes.spines.top": False, "axes.titlecolor": INK, "axes.titlelocation": "left",
    "axes.titlesize": 9, "axes.titleweight": "bold", "axes.titlepad": 7, "axes.unicode_minus": True,
    "figure.constrained_layout.use": True, "figure.constrained_layout.wspace": 0.06,
    "figure.constrained_layout.hspace": 0.08, "font.family": "DejaVu Sans", "font.size": 8.5, "grid.alpha": 0.35,
    "grid.color": FAINT, "grid.linewidth": 0.5, "legend.fontsize": 8.5, "legend.frameon": False,
    "lines.linewidth": 1.5, "lines.markersize": 4.5, "path.simplify": True, "path.simplify_threshold": 0.3,
    "svg.fonttype": "none", "text.color": INK, "text.parse_math": False, "xtick.color": FAINT,
    "xtick.labelcolor": MUTED,
    "xtick.labelsize": 8, "xtick.major.size": 3, "xtick.minor.size": 0, "ytick.color": FAINT, "ytick.labelcolor": MUTED,
    "ytick.labelsize": 8, "ytick.major.size": 0, "ytick.minor.size": 0,
}  # fmt: skip


@contextmanager
def style() -> Iterator[None]:
    """Draws everything inside in the report's style; figures opened inside are closed at the end."""
    with matplotlib.rc_context(_STYLE):
        try:
            yield
        finally:
            plt.close("all")


def panels(
    n: int, *, columns: int = 3, height: float = 2.5, share: bool | Literal["row"] = True
) -> tuple[Figure, list[Axes]]:
    """Opens a grid of `n` small multiples, `height` inches each, in at most `columns` columns.

    `share` puts all panels on common scales; "row" gives each row of panels a y axis of its own.
    """
    columns = min(n, columns if n % columns == 0 or n > 4 else 2)
    rows = -(-n // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(WIDTH, rows * height + 0.5), sharex=bool(share), sharey=share, squeeze=False
    )
    axes = list(grid.flat)
    for spare in axes[n:]:
        spare.remove()
    for above in axes[n - columns : n] if share else []:
        above.tick_params(labelbottom=True)
    return figure, axes[:n]


def series_styles(names: Sequence[str]) -> dict[str, dict]:
    """Gives each name its colour and marker; `wide` and `deep` always have the same ones, in every figure."""
    known = [name for name in ("wide", "deep") if name in names]
    ordered = known + sorted({str(name) for name in names} - set(known))
    offset = 0 if known else 2
    styles = {}
    for index, name in enumerate(ordered):
        slot = index if name in known else index + offset
        styles[name] = {"color": SERIES[slot % len(SERIES)], "marker": MARKERS[slot % len(MARKERS)]}
    return styles


def short(text: object, length: int = 34) -> str:
    """Makes a string from outside fit to stand in a figure: one line, no control characters, `length` at most."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return plain if len(plain) <= length else plain[: length - 1].rstrip() + "…"


def points(axis: Axes, x: Sequence, y: Sequence, barred: Sequence[bool], **look: Any) -> None:
    """Plots a series whose points are hollow where the audit bars them, with what hollow means for the legend."""
    x, y, hollow = (np.asarray(values) for values in (x, y, barred))
    hollow = hollow.astype(bool)
    axis.plot(x, y, **look, markevery=np.flatnonzero(~hollow))
    if hollow.any():
        ring = {**look, "linestyle": "", "markerfacecolor": "none", "label": None}
        axis.plot(x[hollow], y[hollow], **ring)
        axis.plot([], [], marker="o", linestyle="", color=MUTED, markerfacecolor="none", label=HOLLOW)


def legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Puts one legend for all panels above them, if there is more than one series to tell apart.

    It names `MAX_LEGEND` series at most, and says how many more there are.
    """
    entries: dict[str, object] = {}
    for axis in axes:
        for handle, text in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(text, handle)
    if HOLLOW in entries:
        entries[HOLLOW] = entries.pop(HOLLOW)  # to the end
    spare = len(entries) - MAX_LEGEND
    if spare > 0:
        entries = dict(list(entries.items())[:MAX_LEGEND]) | {f"and {spare} more": Line2D([], [], linestyle="")}
    if len(entries) > 1 or HOLLOW in entries:
        longest = max(len(text) for text in entries)
        figure.legend(
            list(entries.values()), list(entries), loc="outside upper left", handlelength=1.6, columnspacing=1.4,
            borderaxespad=0.2, ncols=min(6 if longest < 14 else 4 if longest < 24 else 3, len(entries)),
        )  # fmt: skip


def plain(value: float) -> str:
    """Prints a tick value briefly: 0.02, 5, 1.5k, 20M, −3."""
    if value == 0:
        return "0"
    if value < 0:
        return f"\N{MINUS SIGN}{plain(-value)}"
    for scale, unit in LARGE[:-1]:
        if value >= scale * 0.9999:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.3g}"


def log_axis(axis: Axis, values: Iterable[float], base: float = 10) -> None:
    """Makes an x or y axis (`ax.xaxis`) logarithmic, with a handful of ticks at round values in reach."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log", base=base)
    values = sorted({float(value) for value in values if value > 0})
    axis.set_major_locator(NullLocator())
    wide = axis.axis_name == "y" or axis.axes.get_gridspec().ncols < 3
    few = base == 2 and len(values) <= 8
    axis.set_ticks(values if few else _round_values(values[0], values[-1], steps=5.5 if wide else 4))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))


def _round_values(low: float, high: float, steps: float) -> list[float]:
    """Chooses round values in a range, evenly spread in logarithm: powers of ten first, then what fills gaps.

    Args:
        steps: how many of the least distances between two values the range holds.
    """
    low, high = low / 1.05, high * 1.05
    room = max(math.log10(high / low), 0.02) / steps
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    chosen: list[float] = []
    for mantissa in (1.0, 2.0, 5.0, 3.0, 1.5, 7.0, 4.0, 2.5, 1.2, 6.0, 8.0, 9.0, 1.1, 1.3, 1.05, 1.02, 9.5):
        for value in (mantissa * 10.0**decade for decade in decades):
            if low <= value <= high and all(abs(math.log10(value / other)) >= room for other in chosen):
                chosen.append(value)
    return sorted(chosen)


def linear_axis(axis: Axis) -> None:
    """Gives a linear axis few ticks with brief labels."""
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))


def label_axes(figure: Figure, x: str, y: str = "") -> None:
    """Labels the axes that all panels share."""
    figure.supxlabel(x, fontsize=8.5, color=MUTED)
    if y:
        figure.supylabel(y, fontsize=8.5, color=MUTED)


def start_at_zero(axes: Sequence[Axes]) -> None:
    """Starts the x axes of panels at zero, once all are drawn: a limit keeps out what a shared axis gets after it."""
    for axis in axes:
        axis.set_xlim(left=0)


def save(figure: Figure, path: Path, *, caption: str, alt: str) -> None:
    """Writes a figure as SVG with the sentence that says what it shows and its text alternative, and closes it."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    _write(path, _themed(buffer.getvalue(), path.stem), {"data-caption": caption, "aria-label": alt})


def save_nothing(path: Path, reason: str) -> None:
    """Writes, in place of a figure that has no data, one that says why."""
    text = f"Nothing to draw: {reason}"
    body = f'<text x="0" y="18" font-size="11" fill="var(--muted, #828992)">{html.escape(text)}</text></svg>'
    head = '<svg xmlns="http://www.w3.org/2000/svg" width="547" height="28" viewBox="0 0 547 28">'
    _write(path, head + body, {"data-nothing": reason, "aria-label": text})


def _write(path: Path, svg: str, attributes: dict[str, str]) -> None:
    written = "".join(f' {name}="{html.escape(value)}"' for name, value in attributes.items())
    svg = svg.replace("<svg ", f'<svg class="figure" role="img" font-family="{_FONT}"{written} ', 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg + "\n", encoding="utf-8")


def _themed(svg: str, name: str) -> str:
    """Turns matplotlib's SVG into one that can stand in a page beside others: own ids, CSS colours, short numbers.

    Only tags are touched, never the text between them, which may come from outside.
    """
    svg = svg[svg.index("<svg ") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<style .*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg [^>]*?) xmlns:xlink="[^"]*"', r"\1", svg)
    svg = svg.replace("<svg ", '<svg stroke-linejoin="round" stroke-linecap="butt" ', 1)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg))
    return re.sub(r"<[^>]+>\s*", lambda match: _themed_tag(match[0].rstrip() + "\n", name, used), svg).strip()


def _themed_tag(tag: str, name: str, used: set[str]) -> str:
    if tag.startswith(("<text", "</text")):
        tag = tag.rstrip("\n")
    tag = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", tag)
    tag = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", tag.replace("xlink:href", "href"))
    tag = re.sub(r"font: (?:(bold|\d{3}) )?([\d.]+px) [^;\"]*", _font, tag)
    tag = re.sub(r'(?<= d=")[^"]+', lambda m: _short_path(m[0]), tag)
    tag = re.sub(r"-?\d+\.\d{3,}", _rounded, tag)
    for stand_in, (variable, tone) in _FALLBACK.items():
        tag = tag.replace(stand_in, f"var(--{variable}, {tone})")
    return tag


def _font(match: re.Match) -> str:
    return f"font-size: {match[2]}" + (f"; font-weight: {match[1]}" if match[1] else "")


def _short_path(path: str) -> str:
    digits = 2 if "C" in path else 1
    return " ".join(re.sub(r"-?\d+\.\d+", lambda m: f"{float(m[0]):.{digits}f}".removesuffix(".0"), path).split())


def _rounded(match: re.Match) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
