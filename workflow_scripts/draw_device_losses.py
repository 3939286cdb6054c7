"""Draws validation loss on every device, over tokens and over the time of training.

Inputs: curves.csv. Outputs: the figure (SVG) and what it draws (CSV): name, device, step, tokens, elapsed_s, val_loss
(mean over seeds, nats per token), low, high.
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import csv_tables, plotting
from workflow_scripts.lib.quantities import listing, plural

COLUMNS = ["name", "device", "step", "tokens", "elapsed_s", "val_loss", "low", "high"]
MAX_MODELS = 4


def main(*, curves: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws a row of two panels for each model, if there are two devices."""
    table = csv_tables.read(curves)
    table = table[(table.treatment == "baseline") & table.val_loss.notna()] if len(table) else table
    rows = drawn_rows(table)
    csv_tables.write(rows, data)
    if rows.device.nunique() < 2:
        plotting.save_nothing(figure, f"{plural(rows.device.nunique(), 'device')} trained, and two are compared.")
        return
    names = list(dict.fromkeys(rows.name))[:MAX_MODELS]
    devices = list(dict.fromkeys(rows.device))
    looks = plotting.series_styles(devices)
    with plotting.style():
        canvas, axes = plotting.panels(2 * len(names), columns=2, height=2.4, share=False)
        for axis, (name, x) in zip(axes, [(n, x) for n in names for x in ("tokens", "elapsed_s")], strict=True):
            axis.set_title(f"{plotting.short(name)}, over {'tokens' if x == 'tokens' else 'seconds of training'}")
            own = rows[rows.name == name]
            for index, device in enumerate(devices):
                line = own[own.device == device].sort_values("step")
                axis.fill_between(line[x], line.low, line.high, color=looks[device]["color"], alpha=0.2, linewidth=0)
                axis.plot(line[x], line.val_loss, **looks[device], markersize=5 if index % 2 else 3,
                          markerfacecolor="none" if index % 2 else None, linewidth=1.1,
                          label=plotting.short(device))  # fmt: skip
            if x == "tokens":
                plotting.linear_axis(axis.xaxis)
                axis.set_xlim(left=0)
            else:
                plotting.log_axis(axis.xaxis, rows.elapsed_s)
                axis.set_xlim(rows.elapsed_s.min() / 1.5, rows.elapsed_s.max() * 1.5)
            plotting.linear_axis(axis.yaxis)
        plotting.label_axes(
            canvas, "tokens (left), seconds on a logarithmic axis (right)", "validation loss (nats per token)"
        )
        plotting.legend(canvas, axes)
        caption = (
            "Validation loss of each model on every device: over tokens the same work gives the same loss as far as "
            "numbers and seeds allow; over seconds of training, on a logarithmic axis, the devices stand apart. Bands "
            "reach from the lowest to the highest seed."
        )
        plotting.save(canvas, figure, caption=caption, alt=f"Curves of validation loss on {listing(devices)}.")


def drawn_rows(evaluated: pd.DataFrame) -> pd.DataFrame:
    """Averages the seeds at each evaluation."""
    if evaluated.empty:
        return pd.DataFrame(columns=COLUMNS)
    groups = evaluated.groupby(["name", "device", "step"], sort=False)
    rows = groups.agg(
        tokens=("tokens", "mean"), elapsed_s=("elapsed_s", "mean"), val_loss=("val_loss", "mean"),
        low=("val_loss", "min"), high=("val_loss", "max"),
    )  # fmt: skip
    return rows.reset_index()[COLUMNS]


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
