"""Holds what the study's document claims against what was measured here, beside what its own figures say of it.

Inputs:
    claims, published: claims.yaml and all files of its folder, resources/published.
    runs, cells, processes, timers, comparison, convergence, spikes: the study's tables.
Output:
    checked: checked_claims.csv; a row a claim that names a check: `quote`, the verdicts `published` and `ours`, `why`.
        No rows for a study without a document.
"""

from pathlib import Path
from typing import Any

from workflow_scripts.lib import csv_tables
from workflow_scripts.lib.audit.published import load_documents
from workflow_scripts.lib.audit.registry import CLAIM_KINDS
from workflow_scripts.lib.own_claims import COLUMNS, Evidence, check_claims
from workflow_scripts.lib.tables import write_table


def main(
    *, claims: Path, published: list[Path], runs: Path, cells: Path, processes: Path, timers: Path, comparison: Path,
    convergence: Path, spikes: Path, checked: Path, spec: dict[str, Any],
) -> None:  # fmt: skip
    """Writes the table; `spec["document"]` names the document."""
    tables = {
        "runs": runs, "cells": cells, "processes": processes, "timers": timers, "comparison": comparison,
        "convergence": convergence, "spikes": spikes,
    }  # fmt: skip
    rows = []
    for document in load_documents(claims.parent):
        if document.study == spec["document"]:
            verdicts = [CLAIM_KINDS[claim["kind"]].check(claim, document.tables).holds for claim in document.claims]
            evidence = Evidence(**{name: csv_tables.read(path) for name, path in tables.items()})
            rows = check_claims(document.claims, verdicts, evidence)
    write_table(checked, rows, COLUMNS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
