"""Draws the change of memory, time and loss in per cent of the baseline for each treatment, as `interactions` did.

Inputs: treatment_effects.csv. Outputs: the figure (SVG) and what it draws (CSV): rows of treatment_effects.csv, with
`change`, a fraction.
"""

from pathlib import Path

from workflow_scripts.lib import change_bars, csv_tables
from workflow_scripts.lib.treatment_panels import in_order


def main(*, effects: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure."""
    rows = csv_tables.read(effects)
    order = in_order(rows)[0] if len(rows) else []
    rows = rows.assign(change=rows.ratio - 1, label_of_row=rows.treatment)
    rows = rows[rows.treatment.isin(order)]
    rows = rows.sort_values("treatment", key=lambda names: names.map(order.index), kind="stable") if len(rows) else rows
    change_bars.draw(
        rows, "change", label="change from the baseline", figure=figure, data=data,
        nothing="no treatment can be compared with a baseline.",
        caption="Change from the baseline in per cent, each run at its own end: runs of smaller batches or shorter "
        "contexts saw fewer tokens. The dots above have the intervals that these bars lack.",
    )  # fmt: skip


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
