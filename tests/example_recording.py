"""What a device left in a study, made up and small: records as jobs write them, and the recording packed of them."""

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_run import CELL, CPU, PROFILE, RUN, SHAPE
from workflow_scripts.lib.counts import count_parameters, flops_per_token
from workflow_scripts.lib.history import StepRow
from workflow_scripts.lib.outcome import Outcome
from workflow_scripts.lib.recordings import MANIFEST, RecordedDevice, pack_recording, read_recordings
from workflow_scripts.lib.records import write_record
from workflow_scripts.lib.specs import MemorySpec, to_json

STUDY = "example"
WORK = {"corpus.text": "5e1f", "training.n_steps": 30, "models.tiny": to_json(SHAPE), "selection.size": 1e4}
ENVIRONMENT = {"name": "Example Box", "torch": "2.13.0+cu130"}
OPERATORS = "operator,category,phase,calls_per_step,self_time_s,share,flops,self_memory_bytes\nmm,matrix,,3,0.1,1.0,,\n"


def outcome(**result: Any) -> Outcome:
    times = {"started_at": "2026-03-04T10:00:00+00:00", "ended_at": "2026-03-04T10:00:01+00:00"}
    return Outcome(status="ok", reason="", result=result, peak_process_bytes=10**8, wall_s=1.0, **times)


def selection(**changes: Any) -> dict[str, Any]:
    """A selection of one shape for both roles."""
    shape = dataclasses.replace(SHAPE, **changes)
    role = {
        "shape": to_json(shape),
        "params": dataclasses.asdict(count_parameters(shape)),
        "size": count_parameters(shape).non_embedding,
        "flops_per_token": flops_per_token(shape, shape.sequence_length).training,
        "predicted": {},
    }
    return {
        "quantity": "non_embedding",
        "tolerance": 0.02,
        "size": 1e4,
        "n_candidates": 2,
        "roles": {"wide": role, "deep": role},
        "reasons": ["It was near."],
        "ratios": {},
    }


def write_results(root: Path, device: str = "box", **changes: Any) -> dict[str, bytes]:
    """Writes results/{study}/ of one device; returns its files by their path below it.

    Args:
        root: results/{study}.
        device: id of the device.
        changes: of the shape that the roles have.
    """
    this = dataclasses.replace(CPU, id=device)
    place = root / "devices" / device
    common = {"record_version": 1, "device": device, "code": "c0de", "environment": ENVIRONMENT, "host": "elsewhere"}
    about = {"type": "cpu", "name": "Example Box", "threads": 1, "memory_bytes": 2**34}
    checked = {"synchronisation": {"ratios": {"event": 1.9, "host": 1.8, "third": None}}}
    ceiling = {"quantity": "copy", "unit": "bytes/s", "precision": None, "value": 1e10, "n": 9}
    files: dict[str, Any] = {
        "study.yaml": "config: {}\n",
        "selection.json": selection(**changes),
        "corpus/corpus.json": {"tokens_sha256": "70c5"},
        f"devices/{device}/device.json": {**common, **about, "kind": "device", "detected": {"logical_cores": 8}},
        f"devices/{device}/calibration.json": {**common, "kind": "calibration", "ceilings": [ceiling], **checked},
        f"devices/{device}/profiles/wide/operators.csv": OPERATORS,
        f"devices/{device}/runs/wide-s1/samples.txt": "In the beginning\n",
        f"devices/{device}/runs/wide-s1/metrics.csv": history(),
    }  # fmt: skip
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    (place / "cells").mkdir(exist_ok=True)
    (place / "memory").mkdir(exist_ok=True)
    shape = dataclasses.replace(SHAPE, **changes)
    run = dataclasses.replace(RUN, id="wide-s1", name="wide", model=shape)
    memory = MemorySpec(
        id="tiny", device=CPU, model=SHAPE, step=CELL.step, optimizer=CELL.optimizer, timeout_s=60.0, seed=0
    )
    samples = {"samples_s": [0.01, 0.011, 0.012, 0.0105, 0.0115], "cold_s": [0.5], "memory": {"data_bytes": 8}}
    for kind, name, id, spec, result in (
        ("cell", "cells/tiny.json", "tiny", CELL, samples),
        ("memory", "memory/tiny.json", "tiny", memory, {"peak_allocated_bytes": 10**6, "method": "counted"}),
        ("run", "runs/wide-s1/run.json", "wide-s1", run, {"final_val_loss": 2.5, "train_s": 0.4}),
        ("profile", "profiles/wide/profile.json", "wide", dataclasses.replace(PROFILE, name="wide", model=shape), {}),
    ):
        asked = to_json(dataclasses.replace(spec, device=this))
        whole = {"study": STUDY, "code": "c0de", "environment": ENVIRONMENT, kind: asked}
        write_record(place / name, kind=kind, id=id, asked=asked, spec=whole, outcome=outcome(**result))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def history() -> str:
    rows = [StepRow(n, 64 * n, 0.01 * n, 4 - 0.05 * n, 1e-3, 1.0, 0.01, 2.5 if n == 30 else None) for n in range(1, 31)]
    lines = [",".join("" if value is None else str(value) for value in row) for row in rows]
    return "\n".join([",".join(StepRow._fields), *lines]) + "\n"


def pack(folder: Path, device: str = "box", members: dict[str, bytes] | None = None, **changes: Any) -> Path:
    """Packs a recording of the example's device into `folder`/recordings/example/, with other members if given."""
    if members is None:
        members = write_results(folder / f"results-{device}", device, **changes)
    path = folder / "recordings" / STUDY / f"{device}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    pack_recording(path, study=STUDY, device=device, work=WORK, members=members)
    return path


def members(path: Path) -> dict[str, bytes]:
    """The files of a recording, without its manifest."""
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist() if name != MANIFEST}


def read(folder: Path, **options: Any) -> list[RecordedDevice]:
    """Reads recordings/example/ as a study of the same work on a machine with a device `cpu`."""
    return read_recordings(folder, **{"study": STUDY, "work": WORK, "local": {"cpu": "A CPU"}, **options})


def refusal(folder: Path, **options: Any) -> str:
    """The one line in which a recording is refused."""
    with pytest.raises(ValueError) as refused:
        read(folder, **options)
    message = str(refused.value)
    assert "\n" not in message
    assert ".zip" in message
    return message
