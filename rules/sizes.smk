"""Sizes: passes, precisions and executions beside each other, what would fit, and what isolation is worth.

Input: records of cells and probes, recordings; cells.csv, processes.csv, devices.csv, corpus.json.
Output: results/{study}/tables/passes.csv, speedups.csv, room.csv, isolation.csv; results/{study}/figures/sizes.svg,
speedups.svg, each with its CSV.
Steps: collect_sizes; draw_sizes, draw_speedups.
"""

CAPS = caps(STUDY.config["devices"], list(STUDY.devices.values()))
# Drawn where one product has the three passes of at least three models.
SIZE_FIGURES = (
    ["sizes", "speedups"]
    if any(
        {"forward", "forward_backward", "step"} <= set(product.get("mode", []))
        and len(product["models"]) >= 3
        for product in STUDY.config["grid"]["products"]
    )
    else []
)
SIZE_TABLES = expand(
    "results/{study}/tables/{table}.csv",
    study=STUDY.name,
    table=["passes", "speedups", "room", "isolation"],
)


rule collect_sizes:
    """Sets passes, precisions and executions beside each other, and tells what would fit."""
    input:
        cells=CELLS,
        probes=PROBE_RECORDS,
        recordings=RECORDINGS,
        cells_table="results/{study}/tables/cells.csv",
        processes="results/{study}/tables/processes.csv",
        devices="results/{study}/tables/devices.csv",
        corpus="results/{study}/corpus/corpus.json",
    output:
        passes="results/{study}/tables/passes.csv",
        speedups="results/{study}/tables/speedups.csv",
        fitting="results/{study}/tables/room.csv",
        isolation="results/{study}/tables/isolation.csv",
    log:
        "logs/{study}/tables/sizes.log",
    params:
        spec=spec("collect_sizes", caps_gib=CAPS),
    script:
        "../workflow_scripts/collect_sizes.py"


rule draw_sizes:
    """Draws how each pass grows with the model."""
    input:
        passes="results/{study}/tables/passes.csv",
    output:
        figure="results/{study}/figures/sizes.svg",
        data="results/{study}/figures/sizes.csv",
    log:
        "logs/{study}/figures/sizes.log",
    params:
        spec=spec("draw_sizes"),
    script:
        "../workflow_scripts/draw_sizes.py"


rule draw_speedups:
    """Draws what precision and execution are worth, model by model."""
    input:
        speedups="results/{study}/tables/speedups.csv",
    output:
        figure="results/{study}/figures/speedups.svg",
        data="results/{study}/figures/speedups.csv",
    log:
        "logs/{study}/figures/speedups.log",
    params:
        spec=spec("draw_speedups"),
    script:
        "../workflow_scripts/draw_speedups.py"
