"""Bars of change in per cent for memory, time and loss, one panel each: how `interactions` showed its runs."""

from pathlib import Path

import pandas as pd
from matplotlib.ticker import FuncFormatter, MaxNLocator

from workflow_scripts.lib import csv_tables, facets, plotting
from workflow_scripts.lib.experiments import OUTCOMES
from workflow_scripts.lib.treatment_panels import MOST_ROWS, rows_of

SHOWN = ("peak_bytes", "train_s", "final_val_loss")


def draw(rows: pd.DataFrame, value: str, *, label: str, caption: str, nothing: str, figure: Path, data: Path) -> None:
    """Draws `value`, a fraction, for each `label_of_row`; rows also hold device, name, outcome.

    Args:
        rows: one row a bar.
        value: the column drawn.
        label: of the x axis.
        caption: the sentence that says what it shows.
        nothing: the reason where there is no row.
        figure, data: SVG and CSV to write.
    """
    rows = rows[rows.outcome.isin(SHOWN) & rows[value].notna()] if len(rows) else rows
    if rows.empty:
        csv_tables.write(rows, data)
        plotting.save_nothing(figure, nothing)
        return
    split = facets.split(rows.assign(of=rows["name"].fillna("models")), ["device", "of"])
    panels = [(title, frame, outcome) for title, frame in zip(split.titles, split.frames, strict=True)
              for outcome in SHOWN if outcome in set(frame.outcome)][: plotting.MAX_PANELS]  # fmt: skip
    names = list(dict.fromkeys(rows.label_of_row))[:MOST_ROWS]
    with plotting.style():
        canvas, axes = plotting.panels(len(panels), columns=3, height=0.5 + 0.19 * len(names), share=False)
        rows_of(axes, names, 3 if len(panels) > 4 or len(panels) % 3 == 0 else 2)
        for axis, (title, frame, outcome) in zip(axes, panels, strict=True):
            axis.set_title(f"{OUTCOMES[outcome].title}\n{title}".rstrip())
            bars = frame[(frame.outcome == outcome) & frame.label_of_row.isin(names)]
            colors = [plotting.SERIES[2] if change < 0 else plotting.SERIES[1] for change in bars[value]]
            axis.barh([names.index(name) for name in bars.label_of_row], bars[value], color=colors, height=0.62)
            axis.axvline(0, color=plotting.INK, linewidth=0.8)
            axis.xaxis.set_major_locator(MaxNLocator(4))
            axis.xaxis.set_major_formatter(FuncFormatter(lambda change, _: f"{plotting.plain(100 * change)} %"))
        plotting.label_axes(canvas, label)
        alt = f"Bars of change in memory, time and loss for {len(names)} combinations."
        plotting.save(canvas, figure, caption=f"{caption}{split.left_out}", alt=alt)
    csv_tables.write(split.drawn.drop(columns=["of", "label_of_row"]), data)
