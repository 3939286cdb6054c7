"""The recommendation: what to train on each device in a given time, by prediction, checked by one measured cell.

Input: cells.csv, processes.csv, devices.csv, the cost model; tokens, corpus.json, device.json, calibration.json.
Output: results/{study}/recommendation.json, devices/{device}/recommended.json (the check's record), tables/recommendation,
batches and batch_sweep.csv, figures/recommendation.{svg,csv}.
Steps: recommend_training, check_recommendation, collect_recommendation, draw_recommendation.
"""

RECOMMENDED = STUDY.config["recommendation"] is not None and bool(
    STUDY.config["selection"] or STUDY.config["models"]
)
RECOMMENDATION = [f"results/{STUDY.name}/recommendation.json"] if RECOMMENDED else []
CHECKS = expand(
    "results/{study}/devices/{device}/recommended.json",
    study=STUDY.name,
    device=STUDY.devices if RECOMMENDED else [],
)
RECOMMENDATION_TABLES = expand(
    "results/{study}/tables/{table}.csv",
    study=STUDY.name,
    table=["recommendation", "batches", "batch_sweep"] if RECOMMENDED else [],
)


checkpoint recommend_training:
    """Finds the largest model that each device trains in the given time, and how to train it there."""
    input:
        cells="results/{study}/tables/cells.csv",
        processes="results/{study}/tables/processes.csv",
        cost_model="results/{study}/cost_model.json",
        devices="results/{study}/tables/devices.csv",
    output:
        recommendation="results/{study}/recommendation.json",
    log:
        "logs/{study}/recommendation.log",
    params:
        spec=recommendation_spec,
    script:
        "../workflow_scripts/recommend_training.py"


rule check_recommendation:
    """Times the step of the recommended model."""
    input:
        unpack(
            measuring_inputs(
                "results/{study}/devices/{device}/recommended.json",
                recommended_cell_spec,
            )
        ),
    output:
        record="results/{study}/devices/{device}/recommended.json",
    log:
        "logs/{study}/devices/{device}/recommended.log",
    threads: workflow.cores
    params:
        spec=recommended_cell_spec,
    script:
        "../workflow_scripts/check_recommendation.py"


rule collect_recommendation:
    """Sets what was recommended beside what its checks measured."""
    input:
        recommendation="results/{study}/recommendation.json",
        checks=CHECKS,
        recordings=RECORDINGS,
        cells="results/{study}/tables/cells.csv",
        devices="results/{study}/tables/devices.csv",
    output:
        recommendation_table="results/{study}/tables/recommendation.csv",
        batches_table="results/{study}/tables/batches.csv",
        sweep_table="results/{study}/tables/batch_sweep.csv",
    log:
        "logs/{study}/tables/recommendation.log",
    params:
        spec=spec("collect_recommendation"),
    script:
        "../workflow_scripts/collect_recommendation.py"


rule draw_recommendation:
    """Draws throughput over batch for the recommended models."""
    input:
        recommendation=RECOMMENDATION_TABLES[:1],
        sweep=RECOMMENDATION_TABLES[2:],
    output:
        figure="results/{study}/figures/recommendation.svg",
        data="results/{study}/figures/recommendation.csv",
    log:
        "logs/{study}/figures/recommendation.log",
    params:
        spec=spec("draw_recommendation"),
    script:
        "../workflow_scripts/draw_recommendation.py"
