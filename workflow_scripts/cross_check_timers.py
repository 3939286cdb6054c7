"""Times one cell with Assay's sampler and with torch.utils.benchmark, in turn, in one process.

Inputs:
    tokens, corpus: what the steps are computed on.
    device: read by nobody; that the device has been identified comes first.
    calibration: what it bars is recorded as barred, and not measured.
Output:
    record: the record, whatever became of it; its `result` is what `timer_comparison.compare_timers` gives, in s.
"""

from pathlib import Path
from typing import Any

from workflow_scripts.lib.barring import barred_outcome, outsized_outcome
from workflow_scripts.lib.isolation import run_isolated
from workflow_scripts.lib.records import write_record
from workflow_scripts.lib.specs import DeviceSpec, from_json

COMPARE = "workflow_scripts.lib.timer_comparison:compare_timers"


def main(*, tokens: Path, corpus: Path, device: Path, calibration: Path, record: Path, spec: dict[str, Any]) -> None:
    cell = spec["cell"]
    outcome = (
        outsized_outcome(spec)
        or barred_outcome(calibration, cell["step"])
        or run_isolated(
            COMPARE,
            {"cell": cell, "tokens": str(tokens), "corpus": str(corpus)},
            device=from_json(DeviceSpec, cell["device"]),
            timeout_s=cell["measure"]["timeout_s"],
            fresh=True,
        )
    )
    write_record(
        record,
        kind="timers",
        id=cell["id"],
        asked=cell,
        spec=spec,
        outcome=outcome,
    )


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
