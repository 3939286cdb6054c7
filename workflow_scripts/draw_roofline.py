"""Draws the roofline of each device and precision: measured ceilings, and below them cells and products.

Inputs: cells.csv, ceilings.csv, operator_costs.csv, findings.json. Outputs: the figure (SVG) and what it draws (CSV):
device, precision, what (cell, linear, attention), name, flop_per_byte, flop_per_s, record, barred.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from workflow_scripts.lib import barred, csv_tables, facets, plotting
from workflow_scripts.lib.operator_work import PRODUCTS
from workflow_scripts.lib.quantities import percent, plural

COLUMNS = ["device", "precision", "what", "name", "flop_per_byte", "flop_per_s", "record"]
NEEDED = ["flops_per_token", "tokens_per_step", "moved_bytes_per_step", "achieved_flop_per_s", "record"]
STYLES = {
    "linear": {"color": plotting.SERIES[5], "marker": ".", "alpha": 0.6, "markersize": 3.5},
    "attention": {"color": plotting.SERIES[3], "marker": "^", "alpha": 0.6, "markersize": 3.5},
    "cell": {"color": plotting.SERIES[1], "marker": "o"},
}


def main(
    *, cells: Path, ceilings: Path, operator_costs: Path, findings: Path, figure: Path, data: Path, spec: dict
) -> None:
    """Draws the figure for every device and precision with both ceilings."""
    table = csv_tables.with_columns(csv_tables.read(cells), NEEDED)
    points = pd.concat([cell_points(table), operator_points(csv_tables.read(operator_costs))], ignore_index=True)
    points = barred.mark(points, "name", findings)
    limits = roofs(csv_tables.read(ceilings))
    points = points[[(d, p) in limits for d, p in zip(points.device, points.precision, strict=True)]]
    if points.empty:
        reason = "no device has both ceilings, of products and of copies, and something to set below them."
        plotting.save_nothing(figure, reason)
        csv_tables.write(pd.DataFrame(columns=[*COLUMNS, "barred"]), data)
        return
    panels = facets.split(points, ["device", "precision"])
    with plotting.style():
        canvas, axes = plotting.panels(len(panels.frames), columns=2, height=3.0, share=False)
        for axis, title, frame in zip(axes, panels.titles, panels.frames, strict=True):
            flop_per_s, bytes_per_s = limits[frame.device.iloc[0], frame.precision.iloc[0]]
            reach = np.array([frame.flop_per_byte.min() / 1.5, frame.flop_per_byte.max() * 1.5])
            edge = np.unique(np.clip([reach[0], flop_per_s / bytes_per_s, reach[1]], *reach))
            roof = np.minimum(edge * bytes_per_s, flop_per_s)
            axis.set_title(title)
            axis.plot(edge, roof, color=plotting.INK, linewidth=1.1, label="measured ceilings")
            for what, style in STYLES.items():
                some = frame[frame.what == what]
                look = {**style, "linestyle": "", "label": what}
                plotting.points(axis, some.flop_per_byte, some.flop_per_s, some.barred, **look)
            plotting.log_axis(axis.xaxis, reach)
            plotting.log_axis(axis.yaxis, [*frame.flop_per_s, *roof])
        plotting.label_axes(canvas, "FLOPs for each byte moved", "FLOP/s")
        plotting.legend(canvas, axes)
        timed = points[points.what == "cell"]
        caption = "Measured ceilings of copies (rising) and of products (level), and what cells and operators reach."
        if len(timed):
            shares = [row.flop_per_s / limits[row.device, row.precision][0] for row in timed.itertuples()]
            caption += (
                f" Of {plural(len(timed), 'cell')}, drawn at the FLOPs and bytes of all their operators, the best "
                f"reaches {percent(max(shares))} of the rate of products and the least {percent(min(shares))}."
            )
        if (points.what == "attention").any():
            caption += (
                " Attention counts for all pairs of tokens: kernels that leave out the masked half can lie above."
            )
        alt = f"FLOP/s over FLOPs per byte for {len(timed)} cells and {len(points) - len(timed)} operators."
        plotting.save(canvas, figure, caption=caption + barred.told(points) + panels.left_out, alt=alt)
    csv_tables.write(panels.drawn[[*COLUMNS, "barred"]], data)


def cell_points(cells: pd.DataFrame) -> pd.DataFrame:
    """The measured full steps, at the FLOPs of the model and the bytes of its operators."""
    timed = facets.timed_steps(cells)
    timed = timed[timed.moved_bytes_per_step.notna()] if len(timed) else timed
    if timed.empty:
        return pd.DataFrame(columns=COLUMNS)
    intensity = timed.flops_per_token * timed.tokens_per_step / timed.moved_bytes_per_step
    return timed.assign(
        what="cell", name=timed.cell, flop_per_byte=intensity, flop_per_s=timed.achieved_flop_per_s
    )[COLUMNS]  # fmt: skip


def operator_points(costs: pd.DataFrame) -> pd.DataFrame:
    """The products that the calibration measured one by one."""
    costs = costs[costs.kind.isin(PRODUCTS)] if len(costs) else costs
    if costs.empty:
        return pd.DataFrame(columns=COLUMNS)
    names = costs.kind + " " + costs.direction + " " + costs.dims.astype(str)
    return costs.assign(what=costs.kind, name=names, flop_per_byte=costs.flops / costs.moved_bytes, record=None)[
        COLUMNS
    ]


def roofs(ceilings: pd.DataFrame) -> dict[tuple[str, str], tuple[float, float]]:
    """FLOP/s and bytes/s at best, by device and precision."""
    known = csv_tables.with_columns(ceilings, ["best"])
    known = known[known.best.notna()]
    copies = dict(zip(*(known[known.quantity == "copy"][name] for name in ("device", "best")), strict=True))
    products = known[known.quantity == "matrix_product"]
    return {
        (row.device, row.precision): (row.best, copies[row.device])
        for row in products.itertuples() if row.device in copies
    }  # fmt: skip


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
