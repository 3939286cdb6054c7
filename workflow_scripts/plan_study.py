"""Tells what a study would take: every cell and training with predicted time and memory, and the totals.

Runs nothing that is measured. Times come from the cost model that an earlier run of the study left, if there is one.
"""

import logging
from pathlib import Path
from typing import Any

from workflow_scripts.lib.forecast import Forecaster, read_forecaster
from workflow_scripts.lib.machine_lock import TERMINAL
from workflow_scripts.lib.outlook import entries, lines


def main(*, spec: dict[str, Any]) -> None:
    cost_model = Path(spec["cost_model"])
    if cost_model.is_file():
        forecaster = read_forecaster(cost_model, spec["devices"])
    else:
        forecaster = Forecaster.of({}, spec["devices"])
    for line in lines(entries(spec["planned"], forecaster)):
        logging.getLogger(TERMINAL).info(line)
    if not cost_model.is_file():
        logging.getLogger(TERMINAL).info(f"Times are predicted once there is a cost model: {cost_model}")


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
