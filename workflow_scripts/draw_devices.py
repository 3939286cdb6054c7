"""Draws training throughput by device and model, with intervals.

Inputs: runs.csv, findings.json. Outputs: the figure (SVG) and what it draws (CSV): device, name,
throughput_tokens_per_s, its low_tokens_per_s and high_tokens_per_s over all seeds, n_seeds, barred (one of them is).
"""

from pathlib import Path

import pandas as pd

from workflow_scripts.lib import barred, comparisons, csv_tables, plotting
from workflow_scripts.lib.quantities import count, listing, plural, quantity

COLUMNS = ["device", "name", "throughput_tokens_per_s", "low_tokens_per_s", "high_tokens_per_s", "n_seeds", "barred"]


def main(*, runs: Path, findings: Path, figure: Path, data: Path, spec: dict) -> None:
    """Draws the figure from the runs that ended, if there are two devices of them."""
    table = csv_tables.read(runs)
    ended = table[(table.status == "ok") & (table.treatment == "baseline")] if len(table) else table
    rows = drawn_rows(barred.mark(ended, "run", findings))
    csv_tables.write(rows, data)
    if rows.device.nunique() < 2:
        plotting.save_nothing(figure, f"{plural(rows.device.nunique(), 'device')} trained, and two are compared.")
        return
    styles = plotting.series_styles(rows.name.unique())
    devices = list(dict.fromkeys(rows.sort_values("throughput_tokens_per_s", ascending=False).device))
    with plotting.style():
        canvas, (axis,) = plotting.panels(1, height=0.5 + 0.22 * len(devices) * (len(styles) + 1), columns=1)
        for index, (name, look) in enumerate(styles.items()):
            own = rows[rows.name == name]
            places = [devices.index(device) + 0.24 * (index - (len(styles) - 1) / 2) for device in own.device]
            axis.hlines(
                places, own.low_tokens_per_s, own.high_tokens_per_s, color=look["color"], linewidth=5, alpha=0.4
            )
            look = {**look, "linestyle": "", "label": plotting.short(name)}
            plotting.points(axis, own.throughput_tokens_per_s, places, own.barred, **look)
            for place, row in zip(places, own.itertuples(), strict=True):
                text = quantity(row.throughput_tokens_per_s, "tokens/s")
                axis.annotate(text, (1.02, place), xycoords=("axes fraction", "data"), va="center", color=plotting.INK)
        values = pd.concat([rows.throughput_tokens_per_s, rows.low_tokens_per_s, rows.high_tokens_per_s]).dropna()
        plotting.log_axis(axis.xaxis, [values.min() / 1.3, values.max() * 1.3])
        axis.set_xlim(values.min() / 1.3, values.max() * 1.3)
        axis.set_yticks(range(len(devices)), [plotting.short(device) for device in devices])
        axis.set_ylim(len(devices) - 0.45, -0.55)
        axis.grid(axis="y", visible=False)
        plotting.label_axes(canvas, "training throughput (tokens/s)")
        plotting.legend(canvas, [axis])
        caption = (
            f"Training throughput on each device, on a logarithmic axis, with intervals over "
            f"{plural(int(rows.n_seeds.max()), 'seed')}.{barred.told(rows)}"
        )
        told = [f"{row.name} on {row.device} {count(row.throughput)} tokens/s" for row in
                rows.rename(columns={"throughput_tokens_per_s": "throughput"}).itertuples(index=False)]  # fmt: skip
        plotting.save(canvas, figure, caption=caption, alt=f"Throughput: {listing(told)}.")


def drawn_rows(runs: pd.DataFrame) -> pd.DataFrame:
    """Pools the seeds of each model and device."""
    rows = []
    for (device, name), group in runs.groupby(["device", "name"], sort=False) if len(runs) else ():
        pooled = comparisons.pool(group, "throughput_tokens_per_s")
        if pooled is not None:
            rows.append((device, name, pooled.value, pooled.low, pooled.high, pooled.n, bool(group.barred.any())))
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(COLUMNS[2:5], float))


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
