"""The audit: what in the numbers cannot be believed.

Input: the study's tables and selection, recordings; for the published write-ups the tables in resources/published.
Output: results/{study}/findings.json; results/published/audit.json and audit.html.
Steps: audit_study; audit_published, which no study needs and which is asked for by name.
"""

PUBLISHED = Path("resources/published")
FINDINGS = f"results/{STUDY.name}/findings.json"


rule audit_study:
    """Applies every rule of the audit to the study's tables."""
    input:
        cells="results/{study}/tables/cells.csv",
        runs="results/{study}/tables/runs.csv",
        processes="results/{study}/tables/processes.csv",
        operators="results/{study}/tables/operators.csv",
        devices="results/{study}/tables/devices.csv",
        ceilings="results/{study}/tables/ceilings.csv",
        operator_probes="results/{study}/tables/operator_probes.csv",
        operator_counts="results/{study}/tables/operator_counts.csv",
        selection=SELECTION,
        recordings=RECORDINGS,
        corpus="results/{study}/corpus/corpus.json",
    output:
        findings="results/{study}/findings.json",
    log:
        "logs/{study}/audit.log",
    params:
        spec=spec("audit_study", here=MEASURED_BY, runs=list(STUDY.runs)),
    script:
        "../workflow_scripts/audit_study.py"


rule audit_published:
    """Applies the same rules to tables that others published, and checks what their texts claim."""
    input:
        tables=sorted(path.as_posix() for path in PUBLISHED.glob("*.csv")),
        documents="resources/published/documents.yaml",
        claims="resources/published/claims.yaml",
        assumptions="resources/published/assumptions.yaml",
        mistakes="resources/published/mistakes.yaml",
        template="report/audit.html.j2",
        style="report/style.css",
    output:
        findings="results/published/audit.json",
        page="results/published/audit.html",
    log:
        "logs/published/audit.log",
    params:
        spec=spec("audit_published"),
    script:
        "../workflow_scripts/audit_published.py"
