"""Figures of the two models, their training and their profiles, in the way of figures.smk, which lists them all.

Input: selection.json, curves.csv, operators.csv.
Output: results/{study}/figures/*.{svg,csv}.
Steps: draw_selection, draw_loss_over_tokens, draw_loss_over_time, draw_gradient_norm, draw_step_series, draw_operators.
"""


rule draw_selection:
    """Draws how alike the two selected models are."""
    input:
        selection=SELECTION,
    output:
        figure="results/{study}/figures/selection.svg",
        data="results/{study}/figures/selection.csv",
    log:
        "logs/{study}/figures/selection.log",
    params:
        spec=spec("draw_selection"),
    script:
        "../workflow_scripts/draw_selection.py"


rule draw_loss_over_tokens:
    """Draws training and validation loss over tokens."""
    input:
        curves="results/{study}/tables/curves.csv",
    output:
        figure="results/{study}/figures/loss_over_tokens.svg",
        data="results/{study}/figures/loss_over_tokens.csv",
    log:
        "logs/{study}/figures/loss_over_tokens.log",
    params:
        spec=spec("draw_loss_over_tokens"),
    script:
        "../workflow_scripts/draw_loss_over_tokens.py"


rule draw_loss_over_time:
    """Draws training and validation loss over time."""
    input:
        curves="results/{study}/tables/curves.csv",
    output:
        figure="results/{study}/figures/loss_over_time.svg",
        data="results/{study}/figures/loss_over_time.csv",
    log:
        "logs/{study}/figures/loss_over_time.log",
    params:
        spec=spec("draw_loss_over_time"),
    script:
        "../workflow_scripts/draw_loss_over_time.py"


rule draw_gradient_norm:
    """Draws the norm of the gradient over the steps of each training."""
    input:
        curves="results/{study}/tables/curves.csv",
    output:
        figure="results/{study}/figures/gradient_norm.svg",
        data="results/{study}/figures/gradient_norm.csv",
    log:
        "logs/{study}/figures/gradient_norm.log",
    params:
        spec=spec("draw_gradient_norm"),
    script:
        "../workflow_scripts/draw_gradient_norm.py"


rule draw_step_series:
    """Draws step time over the steps of each training."""
    input:
        curves="results/{study}/tables/curves.csv",
        spikes="results/{study}/tables/spikes.csv",
    output:
        figure="results/{study}/figures/step_series.svg",
        data="results/{study}/figures/step_series.csv",
    log:
        "logs/{study}/figures/step_series.log",
    params:
        spec=spec("draw_step_series"),
    script:
        "../workflow_scripts/draw_step_series.py"


rule draw_operators:
    """Draws the share of each operator in the time of a step."""
    input:
        operators="results/{study}/tables/operators.csv",
    output:
        figure="results/{study}/figures/operators.svg",
        data="results/{study}/figures/operators.csv",
    log:
        "logs/{study}/figures/operators.log",
    params:
        spec=spec("draw_operators"),
    script:
        "../workflow_scripts/draw_operators.py"
