"""Draws what each treatment does to time, memory and loss: ratios to the baseline with their intervals.

Inputs: treatment_effects.csv. Outputs: the figure (SVG) and what it draws (CSV): rows of treatment_effects.csv.
"""

from pathlib import Path

from workflow_scripts.lib import csv_tables, facets, plotting, treatment_panels
from workflow_scripts.lib.experiments import OUTCOMES

SHOWN = ("token_time_s", "peak_bytes", "loss_at_tokens", "loss_at_seconds", "tokens_to_loss", "seconds_to_loss")


def main(*, effects: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure, one column of panels for each outcome."""
    table = csv_tables.read(effects)
    rows = table[table.outcome.isin(SHOWN)] if len(table) else table
    if rows.empty or (rows.ratio.isna() & rows.at_least.isna()).all():
        csv_tables.write(rows.head(0), data)
        plotting.save_nothing(figure, "no treatment can be compared with a baseline.")
        return
    names, left_out = treatment_panels.in_order(rows)
    outcomes = [outcome for outcome in SHOWN if outcome in set(rows.outcome)]
    each = facets.split(rows, ["device", "name"])
    if len(each.frames) > 1:
        outcomes = outcomes[:3]
    panels = [(title, frame, outcome) for title, frame in zip(each.titles, each.frames, strict=True)
              for outcome in outcomes][: plotting.MAX_PANELS]  # fmt: skip
    with plotting.style():
        height = 0.55 + 0.2 * len(names)
        canvas, axes = plotting.panels(len(panels), columns=3, height=height, share=False)
        treatment_panels.rows_of(axes, names, 3 if len(panels) > 4 or len(panels) % 3 == 0 else 2)
        for axis, (title, frame, outcome) in zip(axes, panels, strict=True):
            axis.set_title(f"{OUTCOMES[outcome].title}\n{title}".rstrip())
            _draw(axis, frame[(frame.outcome == outcome) & frame.treatment.isin(names)], names)
        plotting.label_axes(canvas, "with the treatment ÷ baseline (less is better)")
        plotting.legend(canvas, axes)
        caption = (
            "What each treatment does, as ratios to the baseline of the same model, left of the line where it is less. "
            "Bars are 95 % intervals over seeds, the shaded band is what counts as the same; colours are verdicts "
            "after Holm's correction, and open grey ones are undecided. Arrows point on from how far runs came that "
            f"never reached the loss.{left_out}"
        )
        alt = "Ratios to the baseline for: " + "; ".join(plotting.short(name) for name in names) + "."
        plotting.save(canvas, figure, caption=caption, alt=alt)
    csv_tables.write(each.drawn, data)


def _draw(axis: object, frame: object, names: list[str]) -> None:
    margin = float(frame.margin.max()) if len(frame) else 0.0
    axis.axvspan(1 / (1 + margin), 1 + margin, color=plotting.FAINT, alpha=0.25, linewidth=0)
    axis.axvline(1, color=plotting.INK, linewidth=0.8)
    for verdict, color in treatment_panels.VERDICTS.items():
        points = frame[(frame.verdict == verdict) & frame.ratio.notna()]
        y = [names.index(name) for name in points.treatment]
        marker = "s" if verdict == "same" else "o"
        hollow = {"markerfacecolor": "none"} if verdict == "undecided" else {}
        axis.plot(points.ratio, y, color=color, marker=marker, linestyle="", label=verdict, **hollow)
        axis.hlines(y, points.low, points.high, color=color, linewidth=1.3)
    bounded = frame[frame.ratio.isna() & frame.at_least.notna()]
    for row in bounded.itertuples():
        color = treatment_panels.VERDICTS[row.verdict]
        axis.plot(row.at_least, names.index(row.treatment), color=color, marker=">", linestyle="")
    shown = [*frame.ratio.dropna(), *frame.at_least.dropna(), 1 / 1.05, 1.05]
    plotting.log_axis(axis.xaxis, shown)
    axis.set_xlim(min(shown) / 1.06, max(shown) * 1.06)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
