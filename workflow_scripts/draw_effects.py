"""Draws what each axis of the grid does to throughput: ratios of cells that differ in that axis only.

Inputs: cells.csv, findings.json. Outputs: the figure (SVG) and what it draws (CSV): the columns of
`comparisons.effects`: device, model, attention, batch_size, sequence_length, precision, execution (all but the axis
itself), axis, reference, value, ratio, low, high, record_reference, record, and barred (one of the two cells is).
"""

from pathlib import Path

from workflow_scripts.lib import barred, comparisons, csv_tables, facets, plotting
from workflow_scripts.lib.quantities import plural


def main(*, cells: Path, findings: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from pairs of measured cells."""
    table = csv_tables.read(cells)
    timed = barred.mark(facets.timed_steps(table), "cell", findings)
    pairs = comparisons.effects(timed) if len(timed) else timed
    if pairs.empty:
        reason = facets.why_none(table) if timed.empty else "no two measured cells differ in one axis only."
        plotting.save_nothing(figure, reason)
        csv_tables.write(pairs, data)
        return
    without = set(timed.record[timed.barred])
    pairs["barred"] = pairs.record.isin(without) | pairs.record_reference.isin(without)
    pairs["change"] = [f"{comparisons.AXES[p.axis]} {p.reference} → {p.value}" for p in pairs.itertuples()]
    changes = list(dict.fromkeys(pairs.change))[::-1]
    panels = facets.split(pairs, ["device"])
    styles = plotting.series_styles(pairs.model.unique())
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=0.5 + 0.3 * len(changes))
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            axis.set_title(title)
            axis.axvline(1, color=plotting.INK, linewidth=0.8)
            models = list(styles)
            for rank, model in enumerate(models):
                points = frame[frame.model == model]
                offset = (rank - (len(models) - 1) / 2) * min(0.18, 0.7 / len(models))
                y = [changes.index(change) - offset for change in points.change]
                look = {**styles[model], "linestyle": "", "alpha": 0.85, "label": plotting.short(model)}
                plotting.points(axis, points.ratio, y, points.barred, **look)
                axis.hlines(y, points.low, points.high, color=styles[model]["color"], linewidth=1.2, alpha=0.6)
            plotting.log_axis(axis.xaxis, [*pairs.ratio, *pairs.low.dropna(), *pairs.high.dropna()])
            axis.set_yticks(range(len(changes)), changes)
            axis.set_ylim(-0.6, len(changes) - 0.4)
            axis.grid(axis="y", visible=False)
        plotting.label_axes(canvas, "throughput after the change ÷ before")
        plotting.legend(canvas, axes)
        caption = (
            f"What one change does to throughput, all else equal: {plural(len(pairs), 'pair')} of cells, right of the "
            f"line where the change gives more tokens per second, with intervals.{barred.told(pairs)}{panels.left_out}"
        )
        alt = "Ratios of throughput for: " + "; ".join(changes[::-1]) + "."
        plotting.save(canvas, figure, caption=caption, alt=alt)
    csv_tables.write(panels.drawn.drop(columns="change"), data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
