"""Audits tables that others published: every rule on every table, and a verdict on every claim.

Inputs:
    tables: the documents' tables as printed, {study}.{table}.csv; a column's unit stands in its heading or its cells.
    documents, claims, assumptions, mistakes: documents.yaml, claims.yaml, assumptions.yaml, mistakes.yaml beside them.
    template, style: the page's template and style sheet.
Outputs:
    findings: audit.json, findings and verdicts by document with their numbers (s, bytes, ratios).
    page: audit.html, one file without scripts or outside resources.
"""

import logging
from pathlib import Path
from typing import Any

from workflow_scripts.lib import page as pages
from workflow_scripts.lib.audit import sheet
from workflow_scripts.lib.audit.apply import audit_document
from workflow_scripts.lib.audit.published import load_documents
from workflow_scripts.lib.records import write_json

log = logging.getLogger(__name__)


def main(
    *,
    tables: list[Path],
    documents: Path,
    claims: Path,
    assumptions: Path,
    mistakes: Path,
    template: Path,
    style: Path,
    findings: Path,
    page: Path,
    spec: dict[str, Any],
) -> None:
    """Audits the documents in the folder of `documents`; the other inputs name its files, for the workflow."""
    audited = [audit_document(document) for document in load_documents(documents.parent)]
    found, told = sheet.as_json(audited), sheet.sections(audited)
    log.info("%s tables of %s documents: %s", len(tables), len(audited), found["counts"])
    write_json(findings, found)
    html = (
        pages.environment(template.parent)
        .get_template(template.name)
        .render(
            style=pages.Markup(style.read_text(encoding="utf-8")),
            counts=found["counts"],
            mistakes=found["mistakes"],
            documents=told,
            headlines=sheet.headlines(told),
            rules=sheet.rules_used(),
        )
    )
    page.write_text(html, encoding="utf-8")


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
