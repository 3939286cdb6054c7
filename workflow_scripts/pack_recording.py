"""Packs what one device left into a recording, for other machines.

Inputs:
    records: everything that the device left in results/{study}/, without weights and traces.
    about: study.yaml, corpus.json, and selection.json where the study has one.
Outputs:
    recording: recordings/{study}/{device}.zip; the same bytes for the same files.
    manifest: what it holds, with digests, see `recordings.pack_recording`.
"""

import json
from pathlib import Path
from typing import Any

from workflow_scripts.lib.job import announce
from workflow_scripts.lib.recordings import pack_recording
from workflow_scripts.lib.records import write_json


def main(*, records: list[Path], about: list[Path], recording: Path, manifest: Path, spec: dict[str, Any]) -> None:
    root = Path("results") / spec["study"]
    members = {path.relative_to(root).as_posix(): path.read_bytes() for path in [*about, *records]}
    check = f"devices/{recording.stem}/recommended.json"
    if check in members and "spec" not in json.loads(members[check]):
        del members[check]  # nothing was recommended, and so nothing measured
    packed = pack_recording(recording, study=spec["study"], device=recording.stem, work=spec["work"], members=members)
    write_json(manifest, packed)
    announce(f"{recording}: {len(members)} files of {recording.stem} in {recording.stat().st_size:,} bytes")


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
