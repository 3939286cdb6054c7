"""Calibrates a device before anything is timed on it: what it can do at best, and whether what it does is right.

Input:
    device: device.json; a device that is not the one that it should be is barred.
Output:
    calibration: calibration.json. `status` and `reason` of the device as a whole (`barred`: nothing may be measured);
        `synchronisation` (see `self_check.check_clocks`); `ceilings` (a dict for each quantity, in FLOP/s, bytes/s or
        s, see `calibration.summarise`); `operators` and `small_steps` (see `operator_costs.measure_operators`);
        `checks` (see `correctness.check_architecture`, with precision and execution); `barred` and `unavailable`
        (`precision`, `execution`, `reason`: see `verdicts`); `state` before and after; `wall_s` of the measuring
        processes, and of each of their `parts`; `spec`, `code`, `environment`.
"""

import json
import socket
from pathlib import Path
from typing import Any

from workflow_scripts.lib.isolation import run_isolated
from workflow_scripts.lib.job import announce
from workflow_scripts.lib.machine_state import snapshot
from workflow_scripts.lib.outcome import Outcome
from workflow_scripts.lib.records import write_json
from workflow_scripts.lib.specs import DeviceSpec, from_json
from workflow_scripts.lib.verdicts import announcements, check, device_verdict, pairs, verdict

CEILINGS = "workflow_scripts.lib.calibration:measure_ceilings"
OPERATORS = "workflow_scripts.lib.operator_costs:measure_operators"
CHECK = "workflow_scripts.lib.correctness:check_pairs"
TIMEOUT_S = 600.0


def main(*, device: Path, calibration: Path, spec: dict[str, Any]) -> None:
    this = from_json(DeviceSpec, spec["device"])
    wanted = pairs(spec["combinations"])
    before, outcomes = snapshot(this), []

    def run(target: str, **arguments: Any) -> Outcome:
        outcome = run_isolated(
            target,
            {"device": spec["device"], **arguments},
            device=this,
            timeout_s=TIMEOUT_S,
            on_message=lambda message: announce(f"device {this.id}: {message['notice']}"),
        )
        outcomes.append(outcome)
        return outcome

    precisions = sorted({pair[0] for pair in wanted})
    ceilings = run(CEILINGS, precisions=precisions, sustain_s=spec["sustain_s"])
    status, reason = device_verdict(json.loads(device.read_text(encoding="utf-8")), ceilings)
    costs = run(OPERATORS, precisions=precisions, budget_s=spec["operators_s"]) if status == "ok" else None
    parts = [
        {"part": name, "wall_s": one.wall_s} for name, one in zip(("ceilings", "operators"), outcomes, strict=False)
    ]
    checks, refused = [], {"barred": [], "unavailable": []}
    for asked, outcome in check(
        wanted if status == "ok" else {}, lambda waiting: run(CHECK, pairs=waiting, vocab_size=spec["vocab_size"])
    ):
        parts.append({"part": "check", **asked, "wall_s": outcome.wall_s})
        checks += [{**asked, **found} for found in (outcome.result or {}).get("checks", ())]
        kind, why = verdict(outcome)
        if kind != "ok":
            refused[kind].append({**asked, "reason": why})
    measured = ceilings.result or {"synchronisation": None, "ceilings": []}
    values = {
        "record_version": 1,
        "kind": "calibration",
        "device": this.id,
        "status": status,
        "reason": reason,
        **{"synchronisation": measured["synchronisation"], "ceilings": measured["ceilings"]},
        **{name: (costs.result or {}).get(name, []) if costs else [] for name in ("operators", "small_steps")},
        **{"checks": checks, **refused},
        **{"started_at": ceilings.started_at, "wall_s": sum(outcome.wall_s for outcome in outcomes)},
        "parts": parts,
        "host": socket.gethostname(),
        "state": {"before": before, "after": snapshot(this)},
        **{key: spec[key] for key in ("code", "environment")},
        "spec": {key: value for key, value in spec.items() if key not in ("code", "environment")},
    }
    write_json(calibration, values)
    for line in announcements(values):
        announce(f"device {this.id}: {line}")


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
