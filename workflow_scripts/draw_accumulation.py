"""Draws how far a sum is off over the number of its terms, and how much of that the rounding of the terms makes.

Inputs: accumulation.csv. Outputs: the figure (SVG) and what it draws (CSV): device, way, cause, terms, share (size of
the error over the exact sum), record.
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, probe_lines
from workflow_scripts.lib.quantities import percent

COLUMNS = ["device", "way", "cause", "terms", "share", "record"]
CAUSES = {"error": "in all", "input_error": "from rounding the terms", "sum_error": "from rounding the sum"}
LINES = probe_lines.Lines(
    x="terms", y="share", series="way", panels=["device", "cause"], x_base=0, x_label="terms added up",
    y_label="error over the exact sum", columns=3, markers=False, height=2.6,
)  # fmt: skip


def main(*, accumulation: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from every way of adding up; converting the terms first changes nothing that could be drawn."""
    table = csv_tables.read(accumulation)
    rows = table[(table.status == "ok") & (table.upcast.astype(str) != "True")] if len(table) else table
    if rows.empty:
        probe_lines.nothing(figure, data, "no sums were made.", COLUMNS)
        return
    rows = rows.assign(way=rows.sum_format + " sum of " + rows.term_format)
    parts = [rows.assign(cause=text, share=(rows[name] / rows.exact).abs()) for name, text in CAUSES.items()]
    drawn = pd.concat(parts, ignore_index=True)
    last = rows[rows.terms == rows.terms.max()].assign(share=lambda last: (last.error / last.exact).abs())
    best, worst = last.loc[last.share.idxmin()], last.loc[last.share.idxmax()]
    caption = (
        f"What adding up {worst.exact / worst.terms:g} makes of it: after {int(worst.terms):,} terms the "
        f"{worst.way} is {percent(worst.share)} off, the {best.way} {percent(best.share)}."
    )
    alt = "Lines of the relative error of sums over the number of terms."
    probe_lines.draw(drawn[COLUMNS], LINES, caption=caption, alt=alt, figure=figure, data=data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
