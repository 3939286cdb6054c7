"""Figures of the answer and of the grid: one rule each, and beside every SVG the CSV of exactly what it draws.

Input: runs.csv, processes.csv, cells.csv.
Output: results/{study}/figures/*.{svg,csv}.
Steps: draw_comparison, draw_throughput, draw_effects, draw_step_time, draw_expected, draw_memory, draw_first_steps.
"""

# In the order of the report.
FIGURE_NAMES = [
    "comparison",
    "throughput",
    "effects",
    "step_time",
    "expected",
    "roofline",
    "memory",
    "first_steps",
    "selection",
    "candidates",
    "recommendation",
    "loss_over_tokens",
    "loss_over_time",
    "gradient_norm",
    "step_series",
    "operators",
    "devices",
    "device_losses",
    "optimizers",
    *EXPERIMENT_FIGURES,
    *PROBE_FIGURES,
    *SIZE_FIGURES,
]
FIGURES = expand(
    "results/{study}/figures/{figure}.{kind}",
    study=STUDY.name,
    figure=FIGURE_NAMES,
    kind=["svg", "csv"],
)


rule draw_comparison:
    """Draws the ratios of training throughput between models and between devices."""
    input:
        runs="results/{study}/tables/runs.csv",
        processes="results/{study}/tables/processes.csv",
        findings="results/{study}/findings.json",
    output:
        figure="results/{study}/figures/comparison.svg",
        data="results/{study}/figures/comparison.csv",
    log:
        "logs/{study}/figures/comparison.log",
    params:
        spec=spec("draw_comparison"),
    script:
        "../workflow_scripts/draw_comparison.py"


rule draw_throughput:
    """Draws throughput over batch size."""
    input:
        cells="results/{study}/tables/cells.csv",
        findings="results/{study}/findings.json",
    output:
        figure="results/{study}/figures/throughput.svg",
        data="results/{study}/figures/throughput.csv",
    log:
        "logs/{study}/figures/throughput.log",
    params:
        spec=spec("draw_throughput"),
    script:
        "../workflow_scripts/draw_throughput.py"


rule draw_effects:
    """Draws what a change in one axis of the grid does to throughput."""
    input:
        cells="results/{study}/tables/cells.csv",
        findings="results/{study}/findings.json",
    output:
        figure="results/{study}/figures/effects.svg",
        data="results/{study}/figures/effects.csv",
    log:
        "logs/{study}/figures/effects.log",
    params:
        spec=spec("draw_effects"),
    script:
        "../workflow_scripts/draw_effects.py"


rule draw_step_time:
    """Draws step time against model FLOPs per step."""
    input:
        cells="results/{study}/tables/cells.csv",
        findings="results/{study}/findings.json",
    output:
        figure="results/{study}/figures/step_time.svg",
        data="results/{study}/figures/step_time.csv",
    log:
        "logs/{study}/figures/step_time.log",
    params:
        spec=spec("draw_step_time"),
    script:
        "../workflow_scripts/draw_step_time.py"


rule draw_expected:
    """Draws expected against actual step time."""
    input:
        cells="results/{study}/tables/cells.csv",
        ceilings="results/{study}/tables/ceilings.csv",
        findings="results/{study}/findings.json",
    output:
        figure="results/{study}/figures/expected.svg",
        data="results/{study}/figures/expected.csv",
    log:
        "logs/{study}/figures/expected.log",
    params:
        spec=spec("draw_expected"),
    script:
        "../workflow_scripts/draw_expected.py"


rule draw_memory:
    """Draws peak memory over batch size."""
    input:
        cells="results/{study}/tables/cells.csv",
        findings="results/{study}/findings.json",
    output:
        figure="results/{study}/figures/memory.svg",
        data="results/{study}/figures/memory.csv",
    log:
        "logs/{study}/figures/memory.log",
    params:
        spec=spec("draw_memory"),
    script:
        "../workflow_scripts/draw_memory.py"


rule draw_first_steps:
    """Draws what the first step of a process costs against a warm one."""
    input:
        cells="results/{study}/tables/cells.csv",
        findings="results/{study}/findings.json",
    output:
        figure="results/{study}/figures/first_steps.svg",
        data="results/{study}/figures/first_steps.csv",
    log:
        "logs/{study}/figures/first_steps.log",
    params:
        spec=spec("draw_first_steps"),
    script:
        "../workflow_scripts/draw_first_steps.py"


include: "training_figures.smk"
include: "devices_figures.smk"
