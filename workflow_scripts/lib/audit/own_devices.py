"""What a study's devices are, and what measured the recorded ones, in the form that rules read."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from workflow_scripts.lib.audit.recorded import CODE, ESSENTIAL
from workflow_scripts.lib.quantities import listing


def recordings(manifests: Iterable[dict[str, Any]], here: dict[str, Any]) -> pd.DataFrame:
    """One row for each recorded device and each thing that it was measured by.

    Args:
        manifests: of the recordings.
        here: the same of this machine: `record_version`, `torch` (versions; none where nothing is measured), `code`
            (digests by kind of record), `tokens_sha256`.
    """
    rows = []
    for found in manifests:
        theirs, ours = {}, {}
        for kind, digests in found["code"].items():
            known = here["code"].get(kind, [])
            if not set(digests) <= set(known):
                theirs[kind], ours[kind] = digests, known
        by = {
            f"{CODE} {listing(sorted(theirs))}": (_codes(theirs), _codes(ours)),
            **({"torch": (_versions(found["torch"]), _versions(here["torch"]))} if here["torch"] else {}),
            "version of records": (str(found["record_version"]), str(here["record_version"])),
            ESSENTIAL: (found["tokens_sha256"][:12], here["tokens_sha256"][:12]),
        }
        rows += [
            {"label": found["device"], "part": part, "recorded_by": recorded, "measured_by": measured}
            for part, (recorded, measured) in by.items()
        ]
    return pd.DataFrame(rows, columns=["label", "part", "recorded_by", "measured_by"])


def recorded_runs(manifests: Iterable[dict[str, Any]], planned: Iterable[str]) -> pd.DataFrame:
    """One row for each recorded device: how many runs the study has, and which of them its recording lacks."""
    planned, rows = list(planned), []
    for found in manifests:
        there = {name.split("/")[3] for name in found["members"] if name.endswith("/run.json")}
        lacking = [run for run in planned if run not in there]
        rows.append(
            {"label": found["device"], "n_planned": len(planned), "n_lacking": len(lacking), "lacking": lacking}
        )
    return pd.DataFrame(rows, columns=["label", "n_planned", "n_lacking", "lacking"])


def hardware(devices: pd.DataFrame) -> pd.DataFrame:
    """Names each device's hardware (a CPU with other threads is other hardware), with the self-check of its clock."""
    if devices.empty:
        return pd.DataFrame(columns=["label", "hardware"])
    threads = devices["threads"].map(lambda n: f", {n:.0f} thread{'s' * (n != 1)}").where(devices["type"].eq("cpu"), "")
    named = pd.DataFrame({"label": devices["device"], "hardware": devices["name"] + threads})
    checked = devices.columns.intersection(["sync_check_ratio"])
    return pd.concat([named, devices[checked]], axis=1)


def _codes(by_kind: dict[str, list[str]]) -> str:
    return ", ".join(f"{kind} {' '.join(digests)}" for kind, digests in sorted(by_kind.items()))


def _versions(builds: Iterable[str]) -> str:
    """Without what a version was built for, such as `+cu130`, in which devices must differ."""
    return ", ".join(sorted({build.partition("+")[0] for build in builds}))
