"""Lines of one quantity over another, in small panels: what most figures of the probes are."""

import dataclasses
from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, facets, plotting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines:
    """What is drawn: `y` over `x`, a line for each `series`, a panel for each combination of `panels`.

    `x_base` is 2 or 10 for a logarithmic x axis, 0 for a linear one; `level` names a column with a value that is drawn
    as a horizontal line, such as all the memory of a device, with `level_label`.
    """

    x: str
    y: str
    series: str
    panels: list[str]
    x_label: str
    y_label: str
    x_base: int = 2
    log_y: bool = True
    level: str | None = None
    level_label: str = ""
    columns: int = 4
    height: float = 2.2
    markers: bool = True


def draw(rows: pd.DataFrame, lines: Lines, *, caption: str, alt: str, figure: Path, data: Path) -> None:
    """Draws rows, not empty, and writes what it drew; values that no logarithm has are left out of the picture."""
    shown = rows[rows[lines.y].notna() & (rows[lines.y] > 0 if lines.log_y else True)]
    if shown.empty:
        nothing(figure, data, "there is no value to draw.", list(rows.columns))
        return
    panels = facets.split(shown, lines.panels)
    styles = plotting.series_styles(list(shown[lines.series].unique()))
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=lines.columns, height=lines.height)
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(title)
            for name in (name for name in styles if name in set(frame[lines.series])):
                line = frame[frame[lines.series] == name].sort_values(lines.x, kind="stable")
                style = styles[name] if lines.markers else {"color": styles[name]["color"]}
                axis.plot(line[lines.x], line[lines.y], **style, label=plotting.short(name))
            if lines.level and frame[lines.level].notna().any():
                level = float(frame[lines.level].dropna().iloc[0])
                label = lines.level_label
                axis.axhline(level, color=plotting.WARN, linewidth=0.9, linestyle=(0, (4, 2)), label=label)
            if lines.x_base:
                plotting.log_axis(axis.xaxis, shown[lines.x], base=lines.x_base)
            else:
                plotting.linear_axis(axis.xaxis)
            if lines.log_y:
                values = shown[lines.y]
                plotting.log_axis(axis.yaxis, [*values, *(shown[lines.level].dropna() if lines.level else [])])
            else:
                plotting.linear_axis(axis.yaxis)
        plotting.label_axes(canvas, lines.x_label, lines.y_label)
        plotting.legend(canvas, axes)
        plotting.save(canvas, figure, caption=caption + panels.left_out, alt=alt)
    csv_tables.write(panels.drawn[list(rows.columns)], data)


def nothing(figure: Path, data: Path, reason: str, columns: list[str]) -> None:
    """Writes a figure that says why there is none, and a table without rows."""
    plotting.save_nothing(figure, reason)
    csv_tables.write(pd.DataFrame(columns=columns), data)
