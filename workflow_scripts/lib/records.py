"""The record that one cell, run or profile leaves: JSON with raw samples, status, what was observed, and provenance."""

import hashlib
import json
import platform
import socket
from pathlib import Path
from typing import Any

from workflow_scripts.lib.isolation import Outcome
from workflow_scripts.lib.provenance import commit
from workflow_scripts.lib.record_files import read_text
from workflow_scripts.lib.specs import canonical

RECORD_VERSION = 1
READABLE_VERSIONS = (1,)


def write_record(
    path: Path, *, kind: str, id: str, asked: dict[str, Any], spec: dict[str, Any], outcome: Outcome
) -> None:
    """Writes the record of a measurement; `path` appears whole or not at all.

    Args:
        path: the JSON file.
        kind: `cell`, `run`, `profile`, `memory` or `timers`.
        id: the id of what was measured.
        asked: the part of `spec` that says what to measure, with its `DeviceSpec` as `device`.
        spec: the rule's whole spec: study, code, environment, data and what was asked for.
        outcome: how the process ended and what it returned.
    """
    record = {
        "record_version": RECORD_VERSION,
        "kind": kind,
        "id": id,
        "study": spec["study"],
        "device": asked["device"],
        "status": outcome.status,
        "reason": outcome.reason,
        "spec": asked,
        "spec_sha256": spec_digest(canonical(spec)),
        "code": spec["code"],
        "environment": spec["environment"],
        "started_at": outcome.started_at,
        "ended_at": outcome.ended_at,
        "wall_s": outcome.wall_s,
        "start": outcome.start,
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "commit": commit(),
        "peak_process_bytes": outcome.peak_process_bytes,
        "result": outcome.result,
    }
    write_json(path, record)


def spec_digest(spec: str) -> str:
    """Digests a rule's spec, given as the rule's param."""
    return hashlib.sha256(spec.encode()).hexdigest()


def is_current(path: Path, spec: str) -> bool:
    """Whether a record exists and was made from this very spec."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["spec_sha256"] == spec_digest(spec)
    except (OSError, ValueError, KeyError):
        return False


def write_json(path: Path, value: Any) -> None:
    """Writes JSON that other tools read: no NaN or infinity, one final newline, atomically."""
    text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False)
    temporary = path.with_name(f".{path.name}.partial")
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)


def read_record(path: Path) -> dict[str, Any]:
    """Reads a record, of this machine or inside a recording.

    Raises:
        ValueError: the record is of another version than this code reads.
    """
    record = json.loads(read_text(path))
    if record.get("record_version") not in READABLE_VERSIONS:
        raise ValueError(
            f"{path} is a record of version {record.get('record_version')}, and this Assay reads {RECORD_VERSION}: "
            "delete it to measure again"
        )
    return record
