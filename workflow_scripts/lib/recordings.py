"""Recordings: what a device left on another machine, as one file that any study of the same work reads.

`recordings/{study}/{device}.zip` holds the paths below results/{study}/ (records, curves, samples, profiles without
traces, selection, corpus.json) and a manifest with the SHA-256 of each. It is data from outside: checked as a whole
before any job (`archive`, `recording_schema`), and refused in one line that names the file and what to do.
"""

import dataclasses
import hashlib
import json
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workflow_scripts.lib import archive
from workflow_scripts.lib.archive import Refused
from workflow_scripts.lib.recording_schema import check_manifest, check_member, parse_json
from workflow_scripts.lib.records import RECORD_VERSION

MANIFEST = "manifest.json"
RECORDING_VERSION = 1
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+=-]*"
PLACES = (
    rf"study\.yaml|selection\.json|corpus/corpus\.json|devices/{{device}}/(?:(?:device|calibration|recommended)\.json|"
    rf"(?:cells|memory|timers|probes)/{NAME}\.json|runs/{NAME}/(?:run\.json|metrics\.csv|samples\.txt)|"
    rf"profiles/{NAME}/{NAME}\.(?:json|csv))"
)
AGAIN = "pack it again where it was measured (snakemake recording), or delete the file"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedDevice:
    """One device's recording, checked: `members` are the bytes of its files by their path below results/{study}/."""

    path: Path
    manifest: dict[str, Any]
    members: Mapping[str, bytes]

    @property
    def id(self) -> str:
        return self.manifest["device"]

    @property
    def selection(self) -> dict[str, Any] | None:
        """The selection that it was measured with; None where its study names its models."""
        return parse_json(self.members["selection.json"]) if "selection.json" in self.members else None


def pack_recording(
    path: Path, *, study: str, device: str, work: dict[str, Any], members: Mapping[str, bytes]
) -> dict[str, Any]:
    """Writes a device's recording and returns its manifest.

    Args:
        path: the file, `recordings/{study}/{device}.zip`.
        study: name of the study.
        device: id of the device.
        work: what defines the work, by key of the config: see `work.defined_work`.
        members: bytes of each file by its path below results/{study}/.
    """
    records = {name: parse_json(content) for name, content in members.items() if name.endswith(".json")}
    ours = [record for name, record in records.items() if name.startswith("devices/")]
    this = records[f"devices/{device}/device.json"]
    code: dict[str, set[str]] = {}
    for record in ours:
        code.setdefault(record["kind"], set()).add(record["code"])
    manifest = {
        "recording_version": RECORDING_VERSION,
        "record_version": RECORD_VERSION,
        "study": study,
        "device": device,
        "hardware": this["name"],
        "host": this["host"],
        "torch": sorted({record["environment"]["torch"] for record in ours}),
        "code": {kind: sorted(digests) for kind, digests in sorted(code.items())},
        "tokens_sha256": records["corpus/corpus.json"]["tokens_sha256"],
        "work": work,
        "members": {name: hashlib.sha256(members[name]).hexdigest() for name in sorted(members)},
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    archive.pack(path, {**members, MANIFEST: text.encode()})
    return manifest


def read_recordings(
    folder: Path, *, study: str, work: dict[str, Any], local: Mapping[str, str], host: str | None = None
) -> list[RecordedDevice]:
    """Reads and checks every recording of a study, by name.

    A recording that this machine packed of a local device is passed over: its device is there itself.

    Args:
        folder: recordings/{study}.
        study: name of the study.
        work: what defines the local study's work.
        local: names of the local devices' hardware, by id.
        host: name of this machine; asked for by default.

    Raises:
        ValueError: one line, with the file, the fault and what to do.
    """
    host = socket.gethostname() if host is None else host
    found = []
    for path in sorted(folder.glob("*.zip")):
        try:
            device = read_recording(path, study)
            if device.id in local:
                if (device.manifest["host"], device.manifest["hardware"]) == (host, local[device.id]):
                    continue
                raise Refused(
                    f"it records a device {device.id!r}, and a local device has this id: give the local one another "
                    f"(devices: [{{id: NAME, type: …}}]), or delete the file to record this device here"
                )
            check_agreement(device, work)
        except Refused as fault:
            raise ValueError(f"{path.as_posix()}: {fault}") from fault
        found.append(device)
    return found


def read_recording(path: Path, study: str) -> RecordedDevice:
    """Reads one recording.

    Raises:
        Refused: it is no recording of this study and of the device that its name says, or is not whole.
    """
    try:
        members = archive.read_members(path)
        manifest = check_manifest(members.pop(MANIFEST, None), RECORDING_VERSION)
    except Refused as fault:
        raise Refused(f"{fault}: {AGAIN}") from fault
    if manifest["study"] != study:
        raise Refused(
            f"it was recorded in study {manifest['study']!r}, and this is {study!r}: "
            f"move it to recordings/{manifest['study']}/, or delete it"
        )
    if manifest["device"] != path.stem:
        raise Refused(f"it records device {manifest['device']!r}: name the file {manifest['device']}.zip")
    try:
        _check_members(manifest, members)
    except Refused as fault:
        raise Refused(f"{fault}: {AGAIN}") from fault
    return RecordedDevice(path=path, manifest=manifest, members=members)


def _check_members(manifest: dict[str, Any], members: Mapping[str, bytes]) -> None:
    stated = manifest["members"]
    for name in sorted(stated.keys() ^ members.keys()):
        raise Refused(f"its member {name!r} is {'missing' if name in stated else 'not in its manifest'}")
    device = manifest["device"]
    place = re.compile(PLACES.format(device=re.escape(device)))
    for name, content in members.items():
        if not place.fullmatch(name):
            raise Refused(f"its member {name!r} is no file of a device's records")
        if hashlib.sha256(content).hexdigest() != stated[name]:
            raise Refused(f"its member {name!r} was changed after it was packed (its digest differs)")
        check_member(name, content, study=manifest["study"], device=device)
    for name in ("corpus/corpus.json", f"devices/{device}/device.json", f"devices/{device}/calibration.json"):
        if name not in members:
            raise Refused(f"it lacks {name!r}")


def check_agreement(device: RecordedDevice, work: dict[str, Any]) -> None:
    """Refuses a recording of other work; what only one of the two has is no difference."""
    theirs = device.manifest["work"]
    for key in sorted(theirs.keys() & work.keys()):
        if theirs[key] != work[key]:
            other = "selection.adopt: false selects anew; " if key.startswith("selection.") else ""
            raise Refused(
                f"{key} is {_show(theirs[key])} in the recording and {_show(work[key])} here, so that its numbers are "
                f"of other work: {other}give this study a name of its own (study: NAME), or set recordings: ignore"
            )


def adopted(devices: Iterable[RecordedDevice]) -> list[str]:
    """The recordings whose selection a study adopts: all that have one, which must be the same.

    Raises:
        ValueError: two recordings were measured with different models; names both.
    """
    with_selection = [(device, device.selection["roles"]) for device in devices if device.selection]
    for device, roles in with_selection[1:]:
        first, others = with_selection[0]
        for role in sorted(roles.keys() & others.keys()):
            if roles[role]["shape"] != others[role]["shape"]:
                raise ValueError(
                    f"{first.path.as_posix()} and {device.path.as_posix()} were measured with different models as "
                    f"{role}: delete one, or set selection.adopt: false to select anew"
                )
    return [device.path.as_posix() for device, _ in with_selection]


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
