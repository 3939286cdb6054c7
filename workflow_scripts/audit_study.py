"""Audits the tables of a study: every rule on each of them.

Inputs:
    cells, runs, processes, operators, devices, ceilings, operator_probes, operator_counts: the study's tables; any may
        have no rows.
    selection: selection.json, or nothing where the study names its models. The records that the tables name are read
        for raw samples and for what was observed; those that lie elsewhere are passed over.
    recordings, corpus: recordings of other devices, and corpus.json, whose tokens theirs must be, and whose number of
        them tells how often a run saw the text.
Output:
    findings: findings.json, a list of rule, severity (error, warning, note), subject (`device/cell` or `device/run`,
        `all rows`, or a comparison), message, advice, numbers (s, bytes, ratios); gravest first.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pandas as pd

from workflow_scripts.lib import csv_tables
from workflow_scripts.lib.audit import own_devices
from workflow_scripts.lib.audit.apply import audit_table, by_severity
from workflow_scripts.lib.audit.own import material
from workflow_scripts.lib.audit.own_probes import operators_of_probes
from workflow_scripts.lib.audit.sheet import plain
from workflow_scripts.lib.record_files import read_text
from workflow_scripts.lib.records import RECORD_VERSION, write_json


def main(
    *,
    cells: Path,
    runs: Path,
    processes: Path,
    operators: Path,
    devices: Path,
    ceilings: Path,
    selection: list[Path],
    operator_probes: Path,
    operator_counts: Path,
    recordings: list[Path],
    corpus: Path,
    findings: Path,
    spec: dict[str, Any],
) -> None:
    """Writes what the audit has to say of the tables; paths of records are relative to the working directory."""
    manifests = [json.loads(read_text(path / "manifest.json")) for path in recordings]
    text = json.loads(corpus.read_text(encoding="utf-8"))
    tables = material(
        cells=csv_tables.read(cells),
        runs=csv_tables.read(runs),
        processes=csv_tables.read(processes),
        operators=csv_tables.read(operators),
        devices=csv_tables.read(devices),
        ceilings=csv_tables.read(ceilings),
        selection=json.loads(selection[0].read_text(encoding="utf-8")) if selection else {},
        recorded=measured_elsewhere(manifests, text["tokens_sha256"], spec),
        folder=Path(),
    )
    trained_on = text["splits"]["train"]
    tables["runs"] = tables["runs"].assign(corpus_train_tokens=trained_on["stop"] - trained_on["start"])
    tables["recorded_runs"] = own_devices.recorded_runs(manifests, spec["runs"])
    tables |= operators_of_probes(csv_tables.read(operator_probes), csv_tables.read(operator_counts))
    found = [
        dataclasses.replace(finding, subject=f"{name}: all rows") if finding.subject == "all rows" else finding
        for name, table in tables.items()
        for finding in audit_table(table)
    ]
    write_json(findings, [plain(dataclasses.asdict(finding)) for finding in by_severity(found)])


def measured_elsewhere(manifests: list[dict[str, Any]], tokens_sha256: str, spec: dict[str, Any]) -> pd.DataFrame:
    """What measured the recorded devices, beside what measures here."""
    if not manifests:
        return own_devices.recordings([], {})
    here = {**spec["here"], "record_version": RECORD_VERSION, "tokens_sha256": tokens_sha256}
    return own_devices.recordings(manifests, here)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
