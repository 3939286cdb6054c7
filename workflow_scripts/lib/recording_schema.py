"""What the files of a recording must look like, as far as the tables rely on it."""

import csv
import io
import json
import math
from collections.abc import Iterable
from typing import Any

import dacite
import jsonschema

from workflow_scripts.lib.archive import Refused
from workflow_scripts.lib.history import StepRow
from workflow_scripts.lib.outcome import STATUSES
from workflow_scripts.lib.records import READABLE_VERSIONS
from workflow_scripts.lib.specs import CellSpec, DeviceSpec, MemorySpec, ModelShape, ProfileSpec, RunSpec, from_json

TEXT = {"type": "string", "maxLength": 10_000}
OPTIONAL_TEXT = {"type": ["string", "null"], "maxLength": 10_000}
NUMBER = {"type": "number"}
SERIES = {"type": ["array", "null"], "items": NUMBER}


def _object(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": {**required, **optional}}


VERSION = {"enum": list(READABLE_VERSIONS)}
MANIFEST = _object(
    {
        "recording_version": {"type": "integer"},
        "record_version": VERSION,
        "study": TEXT,
        "device": {"type": "string", "pattern": r"^[a-z0-9][a-z0-9_.-]*\Z"},
        "hardware": TEXT,
        "host": TEXT,
        "torch": {"type": "array", "items": TEXT},
        "code": {"type": "object", "additionalProperties": {"type": "array", "items": TEXT}},
        "tokens_sha256": TEXT,
        "work": {"type": "object"},
        "members": {"type": "object", "additionalProperties": TEXT},
    }
)
RESULT = _object(
    {},
    samples_s=SERIES,
    cold_s=SERIES,
    anchor_s=SERIES,
    resumed_at_steps=SERIES,
    compile_s={"type": ["number", "null"]},
    train_s={"type": ["number", "null"]},
    final_val_loss={"type": ["number", "null"]},
    memory={"type": ["object", "null"]},
    energy={
        **_object({"energy_j": NUMBER, "n_steps": {"type": "integer", "minimum": 1}, "elapsed_s": NUMBER}),
        "type": ["object", "null"],
    },
    machine={"type": ["object", "null"]},
    observed=_object({}, learning_rates=SERIES, rate_index={"type": "integer", "minimum": 0}),
    rounds={
        "type": ["array", "null"],
        "items": _object({"timer": TEXT, "samples_s": {"type": "array", "items": NUMBER}, "warned": {}}),
    },
)
RECORD = _object(
    {
        "record_version": VERSION,
        "kind": TEXT,
        "id": TEXT,
        "study": TEXT,
        "device": {"type": "object"},
        "status": {"enum": list(STATUSES)},
        "reason": TEXT,
        "spec": {"type": "object"},
        "code": TEXT,
        "environment": {"type": "object"},
        "started_at": TEXT,
        "ended_at": TEXT,
        "wall_s": NUMBER,
        "commit": OPTIONAL_TEXT,
        "peak_process_bytes": {"type": ["number", "null"]},
        "result": {"oneOf": [{"type": "null"}, RESULT]},
    }
)
SCHEMAS = {
    "manifest": MANIFEST,
    "record": RECORD,
    "device": _object(
        {
            "record_version": VERSION,
            "kind": {"const": "device"},
            "device": TEXT,
            "type": {"enum": ["cpu", "cuda", "mps"]},
            "name": TEXT,
            "threads": {"type": "integer"},
            "memory_bytes": {"type": ["number", "null"]},
            "host": TEXT,
            "code": TEXT,
            "environment": {"type": "object"},
            "detected": {"type": "object"},
        }
    ),
    "calibration": _object(
        {
            "record_version": VERSION,
            "kind": {"const": "calibration"},
            "device": TEXT,
            "code": TEXT,
            "environment": _object({"name": TEXT}),
            "ceilings": {
                "type": "array",
                "items": _object(
                    {"quantity": TEXT, "unit": TEXT, "precision": OPTIONAL_TEXT, "value": {"type": ["number", "null"]}},
                    conditions={"type": "object"},
                ),
            },
        },
        synchronisation={
            "type": ["object", "null"],
            "properties": {
                "ratios": {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
            },
        },
    ),
    "selection": _object(
        {
            "quantity": TEXT,
            "tolerance": NUMBER,
            "size": NUMBER,
            "n_candidates": NUMBER,
            "ratios": {"type": "object", "additionalProperties": NUMBER},
            "reasons": {"type": "array", "items": TEXT},
            "roles": {
                "type": "object",
                "additionalProperties": _object({"shape": {"type": "object"}, "size": NUMBER}),
            },
        }
    ),
    "corpus": _object({"tokens_sha256": TEXT}),
}
VALIDATORS = {name: jsonschema.Draft202012Validator(schema) for name, schema in SCHEMAS.items()}

# The kind of record in each folder of a device, and what its spec must be.
KINDS = {
    "cells": "cell",
    "memory": "memory",
    "timers": "timers",
    "runs": "run",
    "profiles": "profile",
    "probes": "probe",
}
SPECS = {"cell": CellSpec, "timers": CellSpec, "memory": MemorySpec, "run": RunSpec, "profile": ProfileSpec}
METRICS = StepRow._fields
OPERATORS = ("operator", "category", "calls_per_step", "self_time_s")


def parse_json(content: bytes) -> Any:
    """Parses strict JSON.

    Raises:
        Refused: it is not UTF-8, not JSON, nested without end, or has a number that is none.
    """
    try:
        return json.loads(content.decode(), parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise Refused(f"it is no JSON of ours ({error})") from error


def check_manifest(content: bytes | None, version: int) -> dict[str, Any]:
    """Checks the manifest, given as its bytes, or as None where there is none."""
    if content is None:
        raise Refused("it has no manifest.json, and so is no recording")
    manifest = parse_json(content)
    if isinstance(manifest, dict) and manifest.get("recording_version") != version:
        raise Refused(
            f"it is a recording of version {manifest.get('recording_version')}, and this Assay reads {version}"
        )
    _validate("manifest", manifest, "manifest.json")
    return manifest


def check_member(name: str, content: bytes, *, study: str, device: str) -> None:
    """Checks one file of a recording, by its place.

    Raises:
        Refused: the file is not what its place says, or of another study or device.
    """
    try:
        _check(name, content, study, device)
    except (Refused, dacite.DaciteError, UnicodeDecodeError, csv.Error) as fault:
        raise Refused(f"its member {name!r} is not as it should be ({' '.join(str(fault).split())})") from fault


def _check(name: str, content: bytes, study: str, device: str) -> None:
    parts = name.split("/")
    text = content.decode()
    if name.endswith("metrics.csv"):
        _check_csv(text, METRICS, METRICS)
    elif name.endswith("operators.csv"):
        _check_csv(text, OPERATORS, OPERATORS[2:])
    if not name.endswith(".json"):
        return
    value = parse_json(content)
    if parts[-1] == "recommended.json":
        _check_record(value, "cell", "recommended", study, device)
    elif parts[0] != "devices" or len(parts) == 3:
        kind = parts[-1].removesuffix(".json")
        _validate(kind, value, name)
        if kind in ("device", "calibration") and value["device"] != device:
            raise Refused(f"it is of device {value['device']!r}")
        if kind == "selection":
            for role in value["roles"].values():
                from_json(ModelShape, role["shape"])
    elif parts[2] in KINDS and (parts[2] not in ("runs", "profiles") or parts[-1] in ("run.json", "profile.json")):
        _check_record(value, KINDS[parts[2]], parts[3].removesuffix(".json"), study, device)


def _check_record(record: Any, kind: str, identity: str, study: str, device: str) -> None:
    _validate("record", record, identity)
    named = record["spec"]["name"] if kind == "profile" and "name" in record["spec"] else record["id"]
    stated = {"kind": record["kind"], "study": record["study"], "device": record["device"].get("id"), "id": named}
    for key, wanted in {"kind": kind, "study": study, "device": device, "id": identity}.items():
        if stated[key] != wanted:
            raise Refused(f"its {key} is {stated[key]!r}, where {wanted!r} belongs")
    spec = record["spec"]
    from_json(DeviceSpec, spec.get("device", {}))
    if kind in SPECS:
        from_json(SPECS[kind], spec)


def _validate(schema: str, value: Any, name: str) -> None:
    fault = next(iter(VALIDATORS[schema].iter_errors(value)), None)
    if fault is not None:
        place = ".".join(str(part) for part in fault.absolute_path) or name
        message = fault.message if len(fault.message) <= 120 else f"{fault.message[:117]}..."
        raise Refused(f"{place}: {message}")


def _check_csv(text: str, wanted: Iterable[str], numbers: Iterable[str]) -> None:
    rows = csv.reader(io.StringIO(text), strict=True)
    heads = next(rows, [])
    missing = [name for name in wanted if name not in heads]
    if missing:
        raise Refused(f"it lacks the column {missing[0]}")
    places = [heads.index(name) for name in numbers]
    for row in rows:
        if len(row) != len(heads):
            raise Refused(f"a row of it has {len(row)} fields, where {len(heads)} belong")
        for place in places:
            if row[place] and not _is_number(row[place]):
                raise Refused(f"{heads[place]} is {row[place][:40]!r}, no number")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")
