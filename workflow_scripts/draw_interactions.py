"""Draws which changes do together what each does alone, and which do not: a map of interactions for each outcome.

Inputs: interactions.csv. Outputs: the figure (SVG) and what it draws (CSV): rows of interactions.csv.
"""

import math
from pathlib import Path

import pandas as pd
from matplotlib.patches import Rectangle

from workflow_scripts.lib import csv_tables, facets, plotting
from workflow_scripts.lib.experiments import OUTCOMES

SHOWN = ("token_time_s", "peak_bytes", "loss_at_tokens")
FULL = math.log(1.3)  # an interaction this strong has the full colour


def main(*, interactions: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure, one map for each outcome and pair of factors."""
    table = csv_tables.read(interactions)
    rows = table[table.outcome.isin(SHOWN)] if len(table) else table
    if rows.empty:
        csv_tables.write(rows, data)
        plotting.save_nothing(figure, "no two changes were run alone, together and not at all.")
        return
    titles = [OUTCOMES[outcome].title for outcome in SHOWN]
    rows = rows.assign(
        pair=rows.factor_a + " × " + rows.factor_b,
        title=pd.Categorical([OUTCOMES[outcome].title for outcome in rows.outcome], categories=titles, ordered=True),
    )
    panels = facets.split(rows.assign(model=rows["name"].fillna("")), ["device", "model", "pair", "title"])
    tallest = max(frame.level_a.nunique() for frame in panels.frames)
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=1.5 + 0.24 * tallest, share=False)
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(title)
            _draw(axis, frame)
        caption = (
            "What two changes do together over the product of what each does alone: 1 where they multiply, below it "
            "(blue) where together they give less time, memory or loss than that, above it (orange) where more. Bold "
            f"ones differ from 1 after Holm's correction; grey ones may be noise.{panels.left_out}"
        )
        alt = "Maps of interactions: " + "; ".join(panels.titles) + "."
        plotting.save(canvas, figure, caption=caption, alt=alt)
    csv_tables.write(panels.drawn.drop(columns=["pair", "title", "model"]), data)


def _draw(axis: object, frame: object) -> None:
    a, b = (list(dict.fromkeys(frame[level])) for level in ("level_a", "level_b"))
    for row in frame.itertuples():
        x, y = b.index(row.level_b), a.index(row.level_a)
        strength = math.log(row.interaction)
        color = plotting.SERIES[0] if strength < 0 else plotting.SERIES[1]
        sure = row.verdict != "undecided"
        alpha = min(1.0, abs(strength) / FULL) * 0.75 if sure else 0.0
        axis.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=color, alpha=alpha, linewidth=0))
        axis.text(
            x, y, f"{row.interaction:.2f}", ha="center", va="center", fontsize=7.5,
            color=plotting.INK if sure else plotting.MUTED, fontweight="bold" if sure else "normal",
        )  # fmt: skip
    axis.set_xlim(-0.5, len(b) - 0.5)
    axis.set_ylim(len(a) - 0.5, -0.5)
    axis.set_xticks(range(len(b)), [plotting.short(name, 16) for name in b], rotation=35, ha="right")
    axis.set_yticks(range(len(a)), [plotting.short(name, 16) for name in a])
    axis.grid(visible=False)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
