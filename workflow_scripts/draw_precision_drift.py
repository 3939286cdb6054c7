"""Draws how far loss and gradients in other precisions are from fp32's, over the first steps.

Inputs: autocast_steps.csv. Outputs: the figure (SVG) and what it draws (CSV): device, quantity, precision, step, value.
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, probe_lines
from workflow_scripts.lib.quantities import percent

COLUMNS = ["device", "quantity", "precision", "step", "value"]
LINES = probe_lines.Lines(
    x="step", y="value", series="precision", panels=["device", "quantity"], x_base=0, x_label="step",
    y_label="distance from fp32", columns=2, markers=False, height=2.5,
)  # fmt: skip


def main(*, autocast_steps: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the steps of every precision but fp32."""
    table = csv_tables.read(autocast_steps)
    rows = table[table.precision != "fp32"] if len(table) else table
    if rows.empty:
        probe_lines.nothing(figure, data, "no precision was compared with fp32.", COLUMNS)
        return
    gradient = rows.assign(quantity="gradient, relative", value=rows.gradient_distance)
    loss = rows.assign(quantity="loss, nats per token", value=rows.loss_difference.abs())
    drawn = pd.concat([gradient, loss], ignore_index=True)
    first = rows[rows.step == 1].sort_values("gradient_distance").iloc[-1]
    caption = (
        "How far loss and gradients are from fp32's, step by step from equal weights on equal batches. At the first "
        f"step the gradient in {first.precision} is {percent(first.gradient_distance)} away."
    )
    alt = "Lines of the distance of gradient and loss from fp32 over steps."
    probe_lines.draw(drawn[COLUMNS], LINES, caption=caption, alt=alt, figure=figure, data=data)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
