"""Times the recommended model's step on a device, as the grid's cells are timed.

The spec has the recommended cell, or the reason why there is none.

Inputs:
    tokens, corpus: what the steps are computed on.
    device: read by nobody; that the device has been identified comes first.
    calibration: what it bars, or shows to be without hope of ending in time, is recorded with its reason.
Output:
    record: the cell's record, whatever became of it; {"status", "reason"} where nothing was recommended.
"""

from pathlib import Path
from typing import Any

from workflow_scripts.lib.barring import barred_outcome, hopeless_outcome
from workflow_scripts.lib.isolation import run_isolated
from workflow_scripts.lib.job import announce
from workflow_scripts.lib.machine_state import Watch
from workflow_scripts.lib.records import write_json, write_record
from workflow_scripts.lib.specs import CellSpec, from_json

MEASURE = "workflow_scripts.lib.cell:measure_cell"


def main(*, tokens: Path, corpus: Path, device: Path, calibration: Path, record: Path, spec: dict[str, Any]) -> None:
    if spec["reason"]:
        write_json(record, {"status": "unavailable", "reason": f"nothing was recommended: {spec['reason']}"})
        return
    cell = from_json(CellSpec, spec["cell"])
    unmeasured = barred_outcome(calibration, spec["cell"]["step"]) or hopeless_outcome(calibration, cell)
    with Watch(cell.device) as watch:
        outcome = unmeasured or run_isolated(
            MEASURE,
            {"cell": spec["cell"], "tokens": str(tokens), "corpus": str(corpus)},
            device=cell.device,
            timeout_s=cell.measure.timeout_s,
        )
    outcome = watch.put_into(outcome)
    write_record(record, kind="cell", id=cell.id, asked=spec["cell"], spec=spec, outcome=outcome)
    announce(f"recommended on {cell.device.id}: {outcome.status}")


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
