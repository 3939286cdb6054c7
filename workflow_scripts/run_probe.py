"""Carries out one probe of one device, in processes of its own.

Inputs:
    tokens, corpus: what the steps of some probes are computed on.
    device: read by nobody; that the device has been identified comes first.
    calibration: what it bars is recorded as barred, and not measured.
Output:
    record: the record, whatever became of it. Its `result` has `rows`, in s, bytes and nats per token; see the module
        of the probe's kind in `lib/probes`. Beside it, in a folder of its name, lies what a probe keeps for other
        tools, such as the memory snapshots of CUDA's allocator.
"""

import dataclasses
from pathlib import Path
from typing import Any

from workflow_scripts.lib.barring import barred_outcome
from workflow_scripts.lib.isolation import Outcome, run_isolated
from workflow_scripts.lib.job import announce
from workflow_scripts.lib.probe_specs import parts
from workflow_scripts.lib.records import write_record
from workflow_scripts.lib.specs import DeviceSpec, from_json


def main(*, tokens: Path, corpus: Path, device: Path, calibration: Path, record: Path, spec: dict[str, Any]) -> None:
    probe = spec["probe"]
    where = from_json(DeviceSpec, probe["device"])
    outcome = barred_outcome(calibration, probe["step"]) if "step" in probe else None
    if outcome is None:
        outcome = together(
            [
                run_isolated(
                    f"workflow_scripts.lib.probes.{probe['kind']}:probe",
                    {"probe": part, "tokens": str(tokens), "corpus": str(corpus), "kept": str(record.with_suffix(""))},
                    device=where,
                    timeout_s=probe["timeout_s"],
                )
                for part in parts(probe)
            ],
            parts(probe),
        )
    write_record(record, kind="probe", id=probe["id"], asked=probe, spec=spec, outcome=outcome)
    found = len((outcome.result or {}).get("rows", []))
    announce(f"probe {probe['id']} on {where.id}: {outcome.status} {outcome.reason}, {found} rows")


def together(outcomes: list[Outcome], asked: list[dict[str, Any]]) -> Outcome:
    """Joins what became of a probe's parts: a part that ended badly keeps its rows, and has its end in `ended`."""
    rows = [row for outcome in outcomes for row in (outcome.result or {}).get("rows", [])]
    failed = [(outcome, part) for outcome, part in zip(outcomes, asked, strict=True) if outcome.status != "ok"]
    ended = [
        {"status": outcome.status, "reason": outcome.reason}
        | {key: part[key] for key in ("backends", "compiled") if key in part}
        for outcome, part in failed
    ]
    # One part that ended well makes the probe one that has an answer.
    whole = failed[0][0] if len(failed) == len(outcomes) else outcomes[0]
    if len(failed) < len(outcomes):
        whole = dataclasses.replace(whole, status="ok", reason="")
    peaks = [outcome.peak_process_bytes for outcome in outcomes if outcome.peak_process_bytes is not None]
    return dataclasses.replace(
        whole,
        result={**(outcomes[0].result or {}), "rows": rows, "ended": ended},
        peak_process_bytes=max(peaks, default=None),
        wall_s=sum(outcome.wall_s for outcome in outcomes),
        started_at=outcomes[0].started_at,
        ended_at=outcomes[-1].ended_at,
    )


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
