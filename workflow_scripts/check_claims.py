"""Holds what the study's document claims against what was measured here, beside what its own figures say of it.

Inputs:
    published: all files of resources/published.
    tables: the study's tables.
Output:
    checked: checked_claims.csv; a row a claim: `quote`, the verdicts `published` and `ours`, and why, in
        `published_why` and `why`. No rows for a study without a document.
"""

from pathlib import Path
from typing import Any

from workflow_scripts.lib import csv_tables
from workflow_scripts.lib.audit.published import load_documents
from workflow_scripts.lib.audit.registry import CLAIM_KINDS
from workflow_scripts.lib.evidence import Evidence
from workflow_scripts.lib.own_claims import COLUMNS, check_claims
from workflow_scripts.lib.tables import write_table


def main(*, published: list[Path], tables: list[Path], checked: Path, spec: dict[str, Any]) -> None:
    """Writes the table; `spec["document"]` names the document."""
    rows = []
    for document in load_documents(published[0].parent):
        if document.study == spec["document"]:
            verdicts = [CLAIM_KINDS[claim["kind"]].check(claim, document.tables) for claim in document.claims]
            evidence = Evidence({path.stem: csv_tables.read(path) for path in tables})
            rows = check_claims(document.claims, verdicts, evidence)
    write_table(checked, rows, COLUMNS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
