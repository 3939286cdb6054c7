"""Gathers what the devices can do at best into one table, beside their datasheets.

Inputs:
    calibrations: each device's calibration.json.
    recordings: recordings of other devices.
    datasheets: resources/datasheets.csv; dense rates without sparsity, by the exact name that a device gives itself.
Output:
    ceilings_table: ceilings.csv; a row for each device and quantity (`matrix_product`, `copy`, `operator`,
        `operator_and_backward`, `kernel_launch`, `kernel_in_graph`, and for each operator and direction measured alone,
        such as `attention_backward`, its best size). `value` is by the median of `n` samples with its
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
    """The fastest of all sizes of each operator, direction and precision: products in FLOP/s, others in bytes/s."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for row in cost_rows(calibration):
        rate, unit = (row.get("flop_per_s"), "FLOP/s") if row.get("flops") else (row.get("bytes_per_s"), "bytes/s")
        if rate is None:
            continue
        key = (f"{row['kind']}_{row['direction']}", row["precision"])
        if key not in best or best[key]["best"] < rate:
            name, precision = key
            measured = {"quantity": name, "precision": precision, "unit": unit, "n": row["n"]}
            best[key] = {**measured, "value": rate, "best": rate}
    return list(best.values())


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
