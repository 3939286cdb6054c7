"""Records who a device is: its identity, its limits, and torch's own view of it.

Inputs: none.
Output:
    device: device.json. `device` (id), `type`, `name`, `threads`, `memory_bytes`, `driver`, `torch`, `python`,
        `platform`, `host`; `status` and `reason` of the look through torch; `identity` (what must be equal for
        measurements to be comparable); `detected` (all that was found without torch); `probe` (torch's view);
        `state` (clocks, temperature, load at that moment); `spec`, `code`, `environment`.
"""

import json
import platform
import socket
from pathlib import Path
from typing import Any

from workflow_scripts.lib.devices import detect_devices, device_identity, torch_build
from workflow_scripts.lib.isolation import run_isolated
from workflow_scripts.lib.job import announce
from workflow_scripts.lib.machine_state import snapshot
from workflow_scripts.lib.specs import DeviceSpec, from_json

PROBE = "workflow_scripts.lib.device_probe:probe_device"
TIMEOUT_S = 300.0


def main(*, device: Path, spec: dict[str, Any]) -> None:
    this = from_json(DeviceSpec, spec["device"])
    detected = detect_devices()
    identity = device_identity(this, detected)
    found = next(one for one in detected if one["type"] == this.type and one["index"] == this.index)
    outcome = run_isolated(PROBE, {"device": spec["device"]}, device=this, timeout_s=TIMEOUT_S)
    status, reason = outcome.status, outcome.reason
    if status == "ok" and not same_gpu(found.get("uuid"), outcome.result["uuid"]):
        status, reason = "barred", f"torch's {this.torch_name} is {outcome.result['uuid']}, not {found['uuid']}"
    values = {
        "record_version": 1,
        "kind": "device",
        "device": this.id,
        "type": this.type,
        "name": found["name"],
        "threads": this.threads,
        "memory_bytes": found["memory_bytes"],
        "driver": found.get("driver"),
        "torch": torch_build()["version"],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "status": status,
        "reason": reason,
        "identity": identity,
        "detected": found,
        "probe": outcome.result,
        "state": snapshot(this),
        "spec": spec["device"],
        "code": spec["code"],
        "environment": spec["environment"],
    }
    device.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    announce(f"device {this.id}: {found['name']}, {status}{', ' + reason if reason else ''}")


def same_gpu(ours: str | None, torchs: str | None) -> bool:
    """Whether NVML's name of a GPU (`GPU-…`) and torch's (without the prefix) agree, as far as both are known."""
    if ours is None or torchs is None or ours.startswith("MIG-"):
        return True
    return ours.removeprefix("GPU-") == torchs.removeprefix("GPU-")


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
