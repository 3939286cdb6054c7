"""Draws the field of candidates: predicted training time over size, the budgets, and where the chosen ones lie.

Inputs: candidates.csv and selection.json, or none where the study names its models. Outputs: the figure (SVG) and what
it draws (CSV): the rows of candidates.csv that have a predicted time, thinned, with every chosen one.
"""

import json
from pathlib import Path

import pandas as pd

from workflow_scripts.lib import candidate_field, csv_tables, facets, plotting
from workflow_scripts.lib.candidates import CANDIDATE_COLUMNS


def main(*, candidates: list[Path], selection: list[Path], figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the field of candidates."""
    rows = csv_tables.read(candidates[0]) if candidates else pd.DataFrame(columns=CANDIDATE_COLUMNS)
    timed = rows[rows.train_s.notna()]
    if timed.empty:
        csv_tables.write(timed, data)
        reason = "no device has a cost model for training's precision and execution."
        plotting.save_nothing(figure, reason if candidates else "the study names its models, and selects none.")
        return
    budgets = json.loads(selection[0].read_text(encoding="utf-8"))["budgets"]
    budget_s = budgets["train_minutes"] * 60
    drawn = pd.concat([candidate_field.thinned(group) for _, group in timed.groupby("device", sort=False)])
    panels = facets.split(drawn, ["device"])
    styles = plotting.series_styles(list(dict.fromkeys(drawn.role.dropna())))
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=3.2)
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(title)
            _draw_field(axis, frame)
            for role, style in styles.items():
                one = frame[frame.role == role]
                axis.plot(one.n_params_non_embedding, one.train_s, **style, linestyle="", markersize=9,
                          markeredgecolor=plotting.INK, label=role, zorder=5)  # fmt: skip
            top = max(panels.drawn.train_s.max(), budget_s) * 1.3
            axis.axhspan(budget_s, top, color=plotting.WARN, alpha=0.10, linewidth=0)
            axis.axhline(budget_s, color=plotting.WARN, linewidth=0.9, label="time budget")
            plotting.log_axis(axis.xaxis, panels.drawn.n_params_non_embedding)
            plotting.log_axis(axis.yaxis, [panels.drawn.train_s.min() / 1.3, top])
            axis.set_ylim(panels.drawn.train_s.min() / 1.3, top)
        plotting.label_axes(canvas, "parameters without embeddings", "predicted training time of a run (s)")
        plotting.legend(canvas, axes)
        caption = candidate_field.caption(timed, budgets) + panels.left_out
        plotting.save(canvas, figure, caption=caption, alt=candidate_field.text_alternative(timed))
    csv_tables.write(panels.drawn, data)


def _draw_field(axis: plotting.Axes, frame: pd.DataFrame) -> None:
    over = frame.over_memory.astype(bool)
    near = frame.near_size.astype(bool) & ~over
    for mask, marker, colour, size, label in (
        (~over & ~near, ".", plotting.FAINT, 2.5, "candidate"),
        (near, ".", plotting.MUTED, 4.5, "of the asked size"),
        (over, "x", plotting.WARN, 3.5, "over the memory budget"),
    ):
        if mask.any():
            axis.plot(frame.n_params_non_embedding[mask], frame.train_s[mask], marker=marker, color=colour,
                      linestyle="", markersize=size, label=label)  # fmt: skip


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
