"""The study's document, where it has one: what it claims, and its tables beside ours.

Input: the study's tables; resources/published, and there beside/{document}.yaml, which says what stands beside what.
Output: results/{study}/tables/checked_claims.csv, published.csv, published_conditions.csv.
Steps: check_claims; set_beside_published.
"""

DOCUMENT = STUDY.name.removesuffix("_small")
PRINTED = sorted(path.as_posix() for path in PUBLISHED.glob("*.[cy]*"))
EVIDENCE = [
    *TABLES,
    *PROBE_TABLES,
    *SIZE_TABLES,
    *EXPERIMENT_TABLES,
    *COMPARISON_TABLES,
]
PUBLISHED_TABLES = expand(
    "results/{study}/tables/{table}.csv",
    study=STUDY.name,
    table=["checked_claims", "published", "published_conditions"],
)


rule check_claims:
    """Holds what the study's document claims against what was measured here."""
    input:
        published=PRINTED,
        tables=EVIDENCE,
    output:
        checked="results/{study}/tables/checked_claims.csv",
    log:
        "logs/{study}/tables/checked_claims.log",
    params:
        spec=spec("check_claims", document=DOCUMENT),
    script:
        "../workflow_scripts/check_claims.py"


rule set_beside_published:
    """Sets the tables of the study's document beside the study's own."""
    input:
        published=PRINTED,
        pairings=[path.as_posix() for path in PUBLISHED.glob(f"beside/{DOCUMENT}.yaml")],
        tables=EVIDENCE,
    output:
        beside="results/{study}/tables/published.csv",
        conditions="results/{study}/tables/published_conditions.csv",
    log:
        "logs/{study}/tables/published.log",
    params:
        spec=spec("set_beside_published", document=DOCUMENT),
    script:
        "../workflow_scripts/set_beside_published.py"
