"""Draws how far two changes together lie from the sum of their changes in per cent, as `interactions` did.

Inputs: interactions.csv. Outputs: the figure (SVG) and what it draws (CSV): rows of interactions.csv.
"""

from pathlib import Path

from workflow_scripts.lib import change_bars, csv_tables


def main(*, interactions: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure."""
    rows = csv_tables.read(interactions)
    rows = rows.assign(label_of_row=rows.level_a + "+" + rows.level_b)
    change_bars.draw(
        rows, "additive_deviation", label="change of both − sum of the changes of each (points of the baseline)",
        nothing="no two changes were run alone, together and not at all.", figure=figure, data=data,
        caption="Deviation from additivity: the change of both in per cent of the baseline, less the sum of those "
        "of each. Where effects multiply, this is not zero: two halvings make a quarter. The map above tests that.",
    )  # fmt: skip


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
