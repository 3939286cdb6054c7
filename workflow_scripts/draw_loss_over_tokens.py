"""Draws training and validation loss over the tokens trained on.

Inputs: curves.csv. Outputs: the figure (SVG) and what it draws (CSV): device, treatment, name, seed, step, tokens,
elapsed_s, loss (of the training batch, nats per token), val_loss.
"""

from pathlib import Path

from workflow_scripts.lib import csv_tables, loss_curves


def main(*, curves: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the curves of all runs."""
    loss_curves.draw(
        csv_tables.read(curves),
        "tokens",
        label="training tokens",
        unit=1.0,
        what="tokens",
        figure=figure,
        data=data,
    )


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
