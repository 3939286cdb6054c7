"""Gathers what the calibrations measured of single operators into one table, with the work that each does.

Inputs:
    calibrations: each device's calibration.json.
    recordings: recordings of other devices.
Output:
    operator_costs: operator_costs.csv; a row for each device, `kind`, `precision`, `direction` and size (`dims`, see
        `operator_work.Operator`): `seconds` of one call, `host_s` to queue it where that is apart, `n` calls timed,
        `flops` and `moved_bytes` of one, and the rates `flop_per_s` and `bytes_per_s`.
"""

import json
from pathlib import Path
from typing import Any

from workflow_scripts.lib.operator_work import cost_rows
from workflow_scripts.lib.record_files import read_text, recorded
from workflow_scripts.lib.tables import write_table

COLUMNS = "device kind precision direction dims seconds host_s n flops moved_bytes flop_per_s bytes_per_s".split()


def main(*, calibrations: list[Path], recordings: list[Path], operator_costs: Path, spec: dict[str, Any]) -> None:
    every = [*calibrations, *recorded(recordings, "calibration.json")]
    found = [json.loads(read_text(path)) for path in every]
    rows = [row for one in found for row in cost_rows(one)]
    write_table(operator_costs, rows, COLUMNS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
