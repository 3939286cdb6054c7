"""Gathers what the devices can do at best into one table, beside their datasheets.

Inputs:
    calibrations: each device's calibration.json.
    recordings: recordings of other devices.
    datasheets: resources/datasheets.csv; dense rates without sparsity, by the exact name that a device gives itself.
Output:
    ceilings_table: ceilings.csv; a row for each device and quantity (`matrix_product`, `copy`, `operator`,
        `operator_and_backward`, `kernel_launch`, `kernel_in_graph`, and for each operator and direction measured alone,
        such as `attention_backward`, see `best_operators`). `value` is by the median of `n` samples with its
        95 % interval `low` to `high`, `best` by the fastest sample, `last_third` by the end of the sustained time, all
        in `unit` (FLOP/s, bytes/s, s); `side` of square matrices; `ratio_to_fp32` of products; `others_cores` kept busy
        by other processes meanwhile; `datasheet` in `unit` and its `source`, empty where not stated.
"""

import csv
import json
from pathlib import Path
from typing import Any

from workflow_scripts.lib.operator_work import cost_rows
from workflow_scripts.lib.record_files import read_text, recorded
from workflow_scripts.lib.tables import write_table

COLUMNS = (
    "device quantity precision value low high best last_third unit n side ratio_to_fp32 others_cores reason "
    "datasheet source"
).split()
STATED = {"FLOP/s": "flop_per_s", "bytes/s": "bytes_per_s"}


def main(
    *, calibrations: list[Path], recordings: list[Path], datasheets: Path, ceilings_table: Path, spec: dict[str, Any]
) -> None:
    with datasheets.open(encoding="utf-8", newline="") as file:
        stated = list(csv.DictReader(file))
    every = [*calibrations, *recorded(recordings, "calibration.json")]
    found = [json.loads(read_text(path)) for path in every]
    rows = [ceiling_row(calibration, one, stated) for calibration in found for one in calibration["ceilings"]]
    rows += [ceiling_row(calibration, one, stated) for calibration in found for one in best_operators(calibration)]
    write_table(ceilings_table, rows, COLUMNS)


def best_operators(calibration: dict[str, Any]) -> list[dict[str, Any]]:
    """What each operator reaches, by direction and precision: products at their best size, others at their largest.

    Others are told by the bytes that plain operators move. One that would beat a copy so moves less: it is fused, or
    hands on what is there, as the gradient of an addition. It is left out.
    """
    copy = next((one["value"] for one in calibration["ceilings"] if one["quantity"] == "copy"), None)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(cost_rows(calibration), key=lambda row: row["flop_per_s"] or row["moved_bytes"]):
        key = (f"{row['kind']}_{row['direction']}", row["precision"])
        rate, unit = row["flop_per_s"], "FLOP/s"
        if not row["flops"]:
            rate, unit = row["bytes_per_s"], "bytes/s"
        found[key] = {"unit": unit, "n": row["n"], "value": rate, "best": rate}
    return [
        {"quantity": name, "precision": precision, **one}
        for (name, precision), one in found.items()
        if one["unit"] == "FLOP/s" or (copy and one["value"] <= copy)
    ]


def ceiling_row(calibration: dict[str, Any], measured: dict[str, Any], stated: list[dict[str, str]]) -> dict[str, Any]:
    """One row of the table."""
    conditions = measured.get("conditions", {})
    values = {**measured, "side": conditions.get("side"), "others_cores": conditions.get("others_cores")}
    datasheet, source = on_datasheet(calibration["environment"]["name"], measured, stated)
    row = {**values, "device": calibration["device"], "datasheet": datasheet, "source": source}
    return {name: row.get(name) for name in COLUMNS}


def on_datasheet(name: str, measured: dict[str, Any], stated: list[dict[str, str]]) -> tuple[float | None, str | None]:
    """What the vendor states for a quantity of the device of exactly this name, and where; None where nothing is."""
    column = STATED.get(measured["unit"])
    for row in stated:
        if column and row["device"] == name and (row["precision"] or None) == measured["precision"] and row[column]:
            return float(row[column]), row["source"]
    return None, None


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
