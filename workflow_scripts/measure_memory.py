"""Measures the memory of one cell's step, in processes of its own in which nothing is timed.

Inputs:
    tokens, corpus: what the steps are computed on.
    device: read by nobody; that the device has been identified comes first.
    calibration: what it bars is recorded as barred, and not measured.
Output:
    record: the record, whatever became of it; bytes. Its `result` is what `memory_probe.probe_allocated` gives, with
        `footprint` on a CPU: the status, reason and result of `memory_probe.probe_footprint`.
"""

import dataclasses
from pathlib import Path
from typing import Any

from workflow_scripts.lib.barring import barred_outcome, outsized_outcome
from workflow_scripts.lib.isolation import Outcome, run_isolated
from workflow_scripts.lib.job import announce
from workflow_scripts.lib.records import write_record
from workflow_scripts.lib.specs import DeviceSpec, from_json

ALLOCATED = "workflow_scripts.lib.memory_probe:probe_allocated"
FOOTPRINT = "workflow_scripts.lib.memory_probe:probe_footprint"
# Blocks of 64 KiB and more go back to the system as they are freed: mallopt(3), read when the process starts. With
# glibc's own moving threshold the footprint is 1.1 to 1.8 times what is allocated; so it is some per cent above it.
TIGHT_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def main(*, tokens: Path, corpus: Path, device: Path, calibration: Path, record: Path, spec: dict[str, Any]) -> None:
    memory = spec["memory"]
    arguments = {"memory": memory, "tokens": str(tokens), "corpus": str(corpus)}
    where, timeout_s = from_json(DeviceSpec, memory["device"]), memory["timeout_s"]
    outcome = outsized_outcome(spec) or barred_outcome(calibration, memory["step"])
    if outcome is None:
        outcome = run_isolated(ALLOCATED, arguments, device=where, timeout_s=timeout_s)
        if outcome.status == "ok" and where.type == "cpu":
            seen = run_isolated(FOOTPRINT, arguments, device=where, timeout_s=timeout_s, environment=TIGHT_MALLOC)
            outcome = with_footprint(outcome, seen)
    write_record(
        record,
        kind="memory",
        id=memory["id"],
        asked=memory,
        spec=spec,
        outcome=outcome,
    )
    announce(f"memory of {memory['id']} on {where.id}: {summarise(outcome)}")


def with_footprint(outcome: Outcome, seen: Outcome) -> Outcome:
    """Adds what the second process saw; where it failed, the first one's result holds all the same."""
    footprint = {"status": seen.status, "reason": seen.reason, "malloc": TIGHT_MALLOC, **(seen.result or {})}
    result = {**(outcome.result or {}), "footprint": footprint}
    return dataclasses.replace(outcome, result=result, wall_s=outcome.wall_s + seen.wall_s, ended_at=seen.ended_at)


def summarise(outcome: Outcome) -> str:
    """One line on what was found, for the terminal."""
    if outcome.status != "ok" or not outcome.result:
        return f"{outcome.status}, {outcome.reason}"
    return f"{outcome.result['peak_allocated_bytes'] / 2**20:,.4g} MiB allocated at most"


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
