"""Applies the registry: to a table, to a document with its claims, to the tables of a study."""

import dataclasses
from collections.abc import Iterable

import pandas as pd

from workflow_scripts.lib.audit.claims import Claim, Verdict
from workflow_scripts.lib.audit.findings import SEVERITIES, Finding
from workflow_scripts.lib.audit.frames import with_labels
from workflow_scripts.lib.audit.published import Document
from workflow_scripts.lib.audit.registry import CLAIM_KINDS, RULES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audited:
    """What the audit has to say of one document: findings by table, on all tables together, and of each claim."""

    document: Document
    by_table: dict[str, list[Finding]]
    across: list[Finding]
    verdicts: list[tuple[Claim, Verdict, Finding | None]]

    def findings(self) -> list[Finding]:
        """All findings, each with the name of its table in the subject."""
        study = self.document.study
        found = [
            dataclasses.replace(finding, subject=f"{study}, {table}: {finding.subject}")
            for table, findings in self.by_table.items()
            for finding in findings
        ]
        found += [dataclasses.replace(finding, subject=f"{study}: {finding.subject}") for finding in self.across]
        claimed = [finding for _, _, finding in self.verdicts if finding is not None]
        return found + [dataclasses.replace(finding, subject=f"{study}: {finding.subject}") for finding in claimed]


def audit_table(table: pd.DataFrame) -> list[Finding]:
    """Every rule on one table, worst findings first."""
    labelled = with_labels(table)
    return by_severity(finding for rule in RULES.values() if rule.scope == "table" for finding in rule(labelled))


def audit_document(document: Document) -> Audited:
    """Every rule on every table of a document, and a verdict on each of its claims."""
    frames = {name: table.rows for name, table in document.tables.items()}
    across = [finding for rule in RULES.values() if rule.scope == "document" for finding in rule(frames)]
    verdicts = []
    for claim in document.claims:
        kind = CLAIM_KINDS[claim["kind"]]
        verdict = kind.check(claim, document.tables)
        verdicts.append((claim, verdict, kind.finding(claim, verdict)))
    return Audited(
        document=document,
        by_table={name: audit_table(frame) for name, frame in frames.items()},
        across=by_severity(across),
        verdicts=verdicts,
    )


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Errors, then warnings, then notes; in their own order within each."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
