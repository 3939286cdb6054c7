"""Draws the report's first answer: ratios of training throughput between models and between devices, with intervals.

Inputs: runs.csv, processes.csv, findings.json. Outputs: the figure (SVG) and what it draws (CSV): compared (models
or devices), comparison, ratio (of throughputs, the faster over the slower), low, high, verdict, barred (a run of either
is).
"""

import itertools
from pathlib import Path

import pandas as pd

from workflow_scripts.lib import barred, claims, comparisons, csv_tables, plotting
from workflow_scripts.lib.quantities import plural, span, times

COLUMNS = ["compared", "comparison", "ratio", "low", "high", "verdict", "barred"]
MAX_ROWS = 12  # of each kind


def main(*, runs: Path, processes: Path, findings: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the runs that ended."""
    table, repeats = csv_tables.read(runs), csv_tables.read(processes)
    ended = table[(table.status == "ok") & (table.treatment == "baseline")] if len(table) else table
    rows = compared_rows(barred.mark(ended, "run", findings), repeats)
    csv_tables.write(rows, data)
    if rows.empty:
        plotting.save_nothing(figure, f"{plural(len(ended), 'run')} ended, and none has another to be compared with.")
        return
    with plotting.style():
        kinds = [kind for _, kind in rows.groupby("compared", sort=False)]
        canvas, axes = plotting.panels(len(kinds), columns=1, height=0.45 + 0.3 * max(map(len, kinds)), share=False)
        for axis, kind in zip(axes, kinds, strict=True):
            _draw_kind(axis, kind)
        plotting.label_axes(canvas, "ratio of training throughput")
        plotting.legend(canvas, axes)
        caption = "Training throughput of the first named over the second, with intervals that span all seeds of both."
        caption += barred.told(rows)
        alt = "; ".join(
            f"{r.comparison}: {times(r.ratio)} ({span(r.low, r.high)}), {r.verdict}" for r in rows.itertuples()
        )
        plotting.save(canvas, figure, caption=caption, alt=alt)


def _draw_kind(axis: plotting.Axes, rows: pd.DataFrame) -> None:
    axis.set_title(f"between {rows.compared.iloc[0]}")
    axis.axvline(1, color=plotting.INK, linewidth=0.8)
    for y, row in enumerate(rows.itertuples()):
        colour = plotting.SERIES[0] if row.verdict == "faster" else plotting.MUTED
        axis.hlines(y, row.low, row.high, color=colour, linewidth=5, alpha=0.4)
        plotting.points(axis, [row.ratio], [y], [row.barred], marker="o", color=colour, markersize=5.5)
        text = f"{times(row.ratio)}  ({span(row.low, row.high)})  {row.verdict}"
        axis.annotate(text, (1.02, y), xycoords=("axes fraction", "data"), va="center", color=plotting.INK)
    plotting.log_axis(axis.xaxis, [*rows.ratio, *rows.low.dropna(), *rows.high.dropna(), 0.95, 1.05])
    axis.set_yticks(range(len(rows)), [plotting.short(text, 44) for text in rows.comparison])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.grid(axis="y", visible=False)


def compared_rows(runs: pd.DataFrame, processes: pd.DataFrame) -> pd.DataFrame:
    """Pairs models within a device, and devices for a model; the claims explain which pairs are not alike."""
    rows = []
    groups = dict(list(runs.groupby(["device", "name"], sort=False))) if len(runs) else {}
    for (device_a, name_a), (device_b, name_b) in itertools.combinations(groups, 2):
        if (device_a == device_b) == (name_a == name_b):
            continue
        floor = comparisons.noise_floor(processes, device_a) if device_a == device_b else None
        result = claims.compare(groups[device_a, name_a], groups[device_b, name_b], floor)
        if result and result[2] is None:
            ratio, verdict, _ = result
            first, second = (name_a, name_b) if device_a == device_b else (device_a, device_b)
            if ratio.value < 1:
                ratio, first, second = ratio.inverse(), second, first
            verdict = "faster" if verdict == "slower" else verdict
            kind, where = ("models", device_a) if device_a == device_b else ("devices", name_a)
            doubt = bool(pd.concat([groups[device_a, name_a], groups[device_b, name_b]]).barred.any())
            rows.append((kind, f"{where}: {first} ÷ {second}", ratio.value, ratio.low, ratio.high, verdict, doubt))
    table = pd.DataFrame(rows, columns=COLUMNS).astype({"ratio": float, "low": float, "high": float})
    return table.sort_values("compared", ascending=False, kind="stable").groupby("compared", sort=False).head(MAX_ROWS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
