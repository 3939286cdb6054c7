"""Figures of experiments, in the way of figures.smk, which lists them where a study has treatments.

Input: treatment_effects.csv, interactions.csv, pareto.csv, curves.csv, outcomes.csv.
Output: results/{study}/figures/*.{svg,csv}.
Steps: draw_treatment_effects, draw_interactions, draw_pareto, draw_curves_bands, draw_percent_change, draw_additivity.
"""


rule draw_treatment_effects:
    """Draws the ratio of each treatment to the baseline, with its interval."""
    input:
        effects="results/{study}/tables/treatment_effects.csv",
    output:
        figure="results/{study}/figures/treatment_effects.svg",
        data="results/{study}/figures/treatment_effects.csv",
    log:
        "logs/{study}/figures/treatment_effects.log",
    params:
        spec=spec("draw_treatment_effects"),
    script:
        "../workflow_scripts/draw_treatment_effects.py"


rule draw_interactions:
    """Draws which changes do not do together what each does alone."""
    input:
        interactions="results/{study}/tables/interactions.csv",
    output:
        figure="results/{study}/figures/interactions.svg",
        data="results/{study}/figures/interactions.csv",
    log:
        "logs/{study}/figures/interactions.log",
    params:
        spec=spec("draw_interactions"),
    script:
        "../workflow_scripts/draw_interactions.py"


rule draw_pareto:
    """Draws which treatments nothing beats."""
    input:
        pareto="results/{study}/tables/pareto.csv",
    output:
        figure="results/{study}/figures/pareto.svg",
        data="results/{study}/figures/pareto.csv",
    log:
        "logs/{study}/figures/pareto.log",
    params:
        spec=spec("draw_pareto"),
    script:
        "../workflow_scripts/draw_pareto.py"


rule draw_curves_bands:
    """Draws validation loss under each change, over tokens and over time."""
    input:
        curves="results/{study}/tables/curves.csv",
        outcomes="results/{study}/tables/outcomes.csv",
    output:
        figure="results/{study}/figures/curves_bands.svg",
        data="results/{study}/figures/curves_bands.csv",
    log:
        "logs/{study}/figures/curves_bands.log",
    params:
        spec=spec("draw_curves_bands"),
    script:
        "../workflow_scripts/draw_curves_bands.py"


rule draw_percent_change:
    """Draws the change of memory, time and loss in per cent."""
    input:
        effects="results/{study}/tables/treatment_effects.csv",
    output:
        figure="results/{study}/figures/percent_change.svg",
        data="results/{study}/figures/percent_change.csv",
    log:
        "logs/{study}/figures/percent_change.log",
    params:
        spec=spec("draw_percent_change"),
    script:
        "../workflow_scripts/draw_percent_change.py"


rule draw_additivity:
    """Draws how far two changes are from additive."""
    input:
        interactions="results/{study}/tables/interactions.csv",
    output:
        figure="results/{study}/figures/additivity.svg",
        data="results/{study}/figures/additivity.csv",
    log:
        "logs/{study}/figures/additivity.log",
    params:
        spec=spec("draw_additivity"),
    script:
        "../workflow_scripts/draw_additivity.py"
