"""Times the steps of one cell in a process of its own.

Inputs:
    tokens, corpus: what the steps are computed on.
    device: read by nobody; that the device has been identified comes first.
    calibration: what it bars, or shows to be without hope of ending in time, is recorded with its reason.
Output:
    record: the cell's record, whatever became of it; its times are in seconds, its memory in bytes.
"""

from pathlib import Path
from typing import Any

from workflow_scripts.lib.barring import barred_outcome, hopeless_outcome, outsized_outcome
from workflow_scripts.lib.isolation import run_isolated
from workflow_scripts.lib.job import announce
from workflow_scripts.lib.machine_state import Watch
from workflow_scripts.lib.plan import place_in_plan
from workflow_scripts.lib.records import write_record
from workflow_scripts.lib.specs import CellSpec, from_json

MEASURE = "workflow_scripts.lib.cell:measure_cell"


def main(*, tokens: Path, corpus: Path, device: Path, calibration: Path, record: Path, spec: dict[str, Any]) -> None:
    cell = from_json(CellSpec, spec["cell"])
    unmeasured = outsized_outcome(spec) or barred_outcome(calibration, spec["cell"]["step"])
    unmeasured = unmeasured or hopeless_outcome(calibration, cell)
    with Watch(cell.device) as watch:
        outcome = unmeasured or run_isolated(
            MEASURE,
            {"cell": spec["cell"], "tokens": str(tokens), "corpus": str(corpus)},
            device=cell.device,
            timeout_s=cell.measure.timeout_s,
            fresh=cell.fresh,
        )
    write_record(
        record,
        kind="cell",
        id=cell.id,
        asked=spec["cell"],
        spec=spec,
        outcome=watch.put_into(outcome),
    )
    summary = summarise(outcome.status, outcome.reason, outcome.result)
    announce(f"{cell.id} on {cell.device.id}: {summary}  {place_in_plan(record)}")


def summarise(status: str, reason: str | None, result: dict[str, Any] | None) -> str:
    """One line on how a cell went, for the terminal."""
    if status != "ok" or not result:
        return f"{status}, {reason}" if reason else status
    samples = sorted(result["samples_s"])
    return f"{samples[len(samples) // 2] * 1e3:.4g} ms a step, {len(samples)} samples"


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
