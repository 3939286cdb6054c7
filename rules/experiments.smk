"""Experiments: what the treatments of a study do against the baseline, where it has any.

Input: runs.csv, curves.csv, processes.csv; records of probes, for allocations.
Output: results/{study}/tables/outcomes.csv, treatment_effects.csv, interactions.csv, ranks.csv, pareto.csv,
allocations.csv.
Steps: collect_experiments.
"""

EXPERIMENT_TABLES = expand(
    "results/{study}/tables/{table}.csv",
    study=STUDY.name,
    table=(
        [
            "outcomes",
            "treatment_effects",
            "interactions",
            "ranks",
            "pareto",
            "allocations",
        ]
        if len(STUDY.treatments) > 1
        else []
    ),
)
EXPERIMENT_FIGURES = (
    [
        "treatment_effects",
        "interactions",
        "pareto",
        "curves_bands",
        "percent_change",
        "additivity",
    ]
    if EXPERIMENT_TABLES
    else []
)


rule collect_experiments:
    """Compares the treatments with the baseline, with each other, and two at a time."""
    input:
        runs="results/{study}/tables/runs.csv",
        curves="results/{study}/tables/curves.csv",
        processes="results/{study}/tables/processes.csv",
        probes=PROBE_RECORDS,
        recordings=RECORDINGS,
    output:
        outcomes="results/{study}/tables/outcomes.csv",
        effects="results/{study}/tables/treatment_effects.csv",
        interactions_table="results/{study}/tables/interactions.csv",
        ranks_table="results/{study}/tables/ranks.csv",
        pareto_table="results/{study}/tables/pareto.csv",
        allocations="results/{study}/tables/allocations.csv",
    log:
        "logs/{study}/tables/experiments.log",
    params:
        spec=spec("collect_experiments"),
    script:
        "../workflow_scripts/collect_experiments.py"
