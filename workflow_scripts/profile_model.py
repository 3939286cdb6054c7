"""Profiles some training steps of one model in a process of its own; none of its times is a step time.

Inputs:
    tokens, corpus: what the steps are computed on.
    device: read by nobody; that the device has been identified comes first.
    calibration: what it bars is recorded as barred, and not measured.
Outputs, written whatever became of the profile:
    record: the profile's record; times in s per step. See `profiling.profile`.
    operators: a row for each operator and phase with the columns of `operator_table.OperatorRow`, the last one for the
        time in which nothing was traced; only the header if the profile did not end well.
    trace: the same steps as a timeline, gzipped JSON that Perfetto opens; without events if it did not end well.
"""

from pathlib import Path
from typing import Any

from workflow_scripts.lib.barring import barred_outcome, outsized_outcome
from workflow_scripts.lib.isolation import run_isolated
from workflow_scripts.lib.job import announce
from workflow_scripts.lib.operator_table import OperatorRow
from workflow_scripts.lib.records import write_record
from workflow_scripts.lib.specs import DeviceSpec, from_json
from workflow_scripts.lib.timeline import write_trace
from workflow_scripts.lib.whole_files import write_rows

PROFILE = "workflow_scripts.lib.profiling:profile"


def main(
    *,
    tokens: Path,
    corpus: Path,
    device: Path,
    calibration: Path,
    record: Path,
    operators: Path,
    trace: Path,
    spec: dict[str, Any],
) -> None:
    profile = spec["profile"]
    title = f"profile {profile['name']} on {profile['device']['id']}"
    paths = {"tokens": tokens, "corpus": corpus, "operators": operators, "trace": trace}
    outcome = (
        outsized_outcome(spec)
        or barred_outcome(calibration, profile["step"])
        or run_isolated(
            PROFILE,
            {"profile": profile} | {key: str(path) for key, path in paths.items()},
            device=from_json(DeviceSpec, profile["device"]),
            timeout_s=profile["timeout_s"],
        )
    )
    if outcome.status != "ok":
        write_rows(operators, OperatorRow._fields, [])
        write_trace(trace, {"traceEvents": []}, f"{title}: {outcome.status}, {outcome.reason}")
    write_record(
        record,
        kind="profile",
        id=profile["name"],
        asked=profile,
        spec=spec,
        outcome=outcome,
    )
    announce(f"{title}: {summarise(outcome.status, outcome.reason, outcome.result)}")


def summarise(status: str, reason: str, result: dict[str, Any] | None) -> str:
    """One line on how a profile went, for the terminal: where most of the time is."""
    if status != "ok" or not result:
        return f"{status}: {reason}"
    largest = sorted(result["categories"].items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{category} {share:.0%}" for category, share in largest)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
