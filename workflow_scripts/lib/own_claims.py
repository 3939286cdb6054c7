"""Claims of a document held against what was measured here: holds, does not hold, cannot be said, and why.

A claim in resources/published/claims.yaml names its check here by `ours`; the checks of a document are in the module
of its name. A claim without one is listed as what cannot be said: nothing that was measured speaks of it.
"""

from collections.abc import Callable
from typing import Any

from workflow_scripts.lib import (
    own_claims_attention_and_precision,
    own_claims_cpu_optimizations,
    own_claims_interactions,
    own_claims_model_sizes,
    own_claims_wide_vs_deep,
)
from workflow_scripts.lib.audit.claims import Verdict
from workflow_scripts.lib.evidence import CANNOT, Evidence, Judgement

DOCUMENTS = (
    own_claims_attention_and_precision,
    own_claims_cpu_optimizations,
    own_claims_interactions,
    own_claims_model_sizes,
    own_claims_wide_vs_deep,
)
CHECKS: dict[str, Callable[[Evidence], Judgement]] = {
    check.__name__: check for document in DOCUMENTS for check in document.CHECKS
}
COLUMNS = ["quote", "about", "published", "published_why", "ours", "why"]
UNMEASURED = "nothing that was measured here speaks of it"
ARITHMETIC = "it is arithmetic, which no measurement changes"


def check_claims(claims: list[dict[str, Any]], published: list[Verdict], evidence: Evidence) -> list[dict[str, str]]:
    """Gives a row for each claim.

    Args:
        claims: of one document.
        published: what the document's own figures say of each.
        evidence: the study's tables.
    """
    rows = []
    for claim, verdict in zip(claims, published, strict=True):
        silence = ARITHMETIC if claim["kind"] == "equation" else UNMEASURED
        ours, why = CHECKS[claim["ours"]](evidence) if "ours" in claim else (CANNOT, silence)
        named = {
            "quote": claim["quote"],
            "about": claim.get("about", ""),
            "published": verdict.holds,
            "published_why": verdict.message,
        }
        rows.append(named | {"ours": ours, "why": why})
    return rows
