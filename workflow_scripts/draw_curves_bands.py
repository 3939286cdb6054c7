"""Draws validation loss over tokens and over seconds, one pair of panels for each factor, with bands over seeds.

Inputs: curves.csv, outcomes.csv. Outputs: the figure (SVG) and what it draws (CSV): device, name, factor, treatment,
step, tokens, elapsed_s, val_loss (mean over seeds), low, high.
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, plotting
from workflow_scripts.lib.experiments import BASELINE, changed, levels_of
from workflow_scripts.lib.quantities import unit_for

COLUMNS = ["device", "name", "factor", "treatment", "step", "tokens", "elapsed_s", "val_loss", "low", "high"]


def main(*, curves: Path, outcomes: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure."""
    rows = _banded(csv_tables.read(curves), csv_tables.read(outcomes))
    csv_tables.write(rows, data)
    if rows.empty:
        plotting.save_nothing(figure, "no treatment was evaluated beside a baseline.")
        return
    groups = list(rows.groupby(["device", "name", "factor"], sort=False))[: plotting.MAX_PANELS // 2]
    with plotting.style():
        canvas, axes = plotting.panels(2 * len(groups), columns=2, height=2.7, share=False)
        for place, ((device, name, factor), frame) in enumerate(groups):
            who = " · ".join([factor, *([f"{device} {name}"] if len({key[:2] for key, _ in groups}) > 1 else [])])
            treatments = list(dict.fromkeys(frame.treatment))
            for axis, x, unit in zip(
                axes[2 * place : 2 * place + 2], ("tokens", "elapsed_s"), ("tokens", "s"), strict=True
            ):
                scale, unit_name = unit_for([frame[x].max()], unit)
                axis.set_title(f"{who}, over {'tokens' if unit == 'tokens' else 'time'}")
                axis.set_xlabel(unit_name)
                for index, treatment in enumerate(treatments):
                    line = frame[frame.treatment == treatment]
                    color = plotting.INK if treatment == BASELINE else plotting.SERIES[(index - 1) % 6]
                    marker = None if treatment == BASELINE else plotting.MARKERS[(index - 1) % 6]
                    axis.fill_between(line[x] / scale, line.low, line.high, color=color, alpha=0.2, linewidth=0)
                    axis.plot(line[x] / scale, line.val_loss, color=color, marker=marker, markevery=0.2, linewidth=1.2,
                              markersize=3.6, label=plotting.short(treatment))  # fmt: skip
                plotting.linear_axis(axis.xaxis)
                plotting.log_axis(axis.yaxis, [*frame.low, *frame.high])
                axis.set_xlim(left=0)
            axes[2 * place + 1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7)
        plotting.label_axes(canvas, "", "validation loss (nats per token)")
        caption = (
            "Validation loss of each change alone, the baseline in the colour of text: lines are means over seeds, "
            "bands reach from the lowest to the highest seed. Left over tokens, right over time of training."
        )
        alt = f"Curves of validation loss for {', '.join(dict.fromkeys(rows.treatment))}."
        plotting.save(canvas, figure, caption=caption, alt=alt)


def _banded(curves: pd.DataFrame, outcomes: pd.DataFrame) -> pd.DataFrame:
    """Means and ends over seeds at each evaluation, for the baseline and every level alone, by factor."""
    parts = []
    keys = ["device", "name", "treatment"]
    evaluated = curves[curves.val_loss.notna()] if len(curves) else curves
    known = outcomes.drop_duplicates(keys).to_dict("records")
    lines = dict(iter(evaluated.groupby(keys, sort=False))) if len(evaluated) else {}
    for row in known:
        factors = changed(levels_of(row))
        if len(factors) != 1 or (row["device"], row["name"], row["treatment"]) not in lines:
            continue
        start = [] if any(_is(part, row, factors[0]) for part in parts) else [BASELINE]
        for treatment in [*start, row["treatment"]]:
            line = lines.get((row["device"], row["name"], treatment))
            if line is not None:
                steps = line.groupby("step", sort=True)
                banded = steps[["tokens", "elapsed_s", "val_loss"]].mean()
                banded = banded.assign(low=steps.val_loss.min(), high=steps.val_loss.max()).reset_index()
                parts.append(
                    banded.assign(device=row["device"], name=row["name"], factor=factors[0], treatment=treatment)
                )
    return pd.concat(parts, ignore_index=True)[COLUMNS] if parts else pd.DataFrame(columns=COLUMNS)


def _is(part: pd.DataFrame, row: dict, factor: str) -> bool:
    return tuple(part.iloc[0][["device", "name", "factor"]]) == (row["device"], row["name"], factor)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
