"""Figures of the probes, in the way of figures.smk, which lists those that the study asks for.

Input: attention.csv, accumulation.csv, autocast_steps.csv, clocks.csv, operator_probes.csv, ceilings.csv, warm_up.csv.
Output: results/{study}/figures/*.{svg,csv}.
Steps: draw_attention, draw_attention_memory, draw_accumulation, draw_precision_drift,
draw_clocks, draw_operator_modes, draw_operator_roofline, draw_warm_up.
"""


rule draw_attention:
    """Draws how long attention alone takes over the context length."""
    input:
        attention="results/{study}/tables/attention.csv",
    output:
        figure="results/{study}/figures/attention.svg",
        data="results/{study}/figures/attention.csv",
    log:
        "logs/{study}/figures/attention.log",
    params:
        spec=spec("draw_attention"),
    script:
        "../workflow_scripts/draw_attention.py"


rule draw_attention_memory:
    """Draws what attention alone takes of memory."""
    input:
        attention="results/{study}/tables/attention.csv",
    output:
        figure="results/{study}/figures/attention_memory.svg",
        data="results/{study}/figures/attention_memory.csv",
    log:
        "logs/{study}/figures/attention_memory.log",
    params:
        spec=spec("draw_attention_memory"),
    script:
        "../workflow_scripts/draw_attention_memory.py"


rule draw_accumulation:
    """Draws how far sums are off, and why."""
    input:
        accumulation="results/{study}/tables/accumulation.csv",
    output:
        figure="results/{study}/figures/accumulation.svg",
        data="results/{study}/figures/accumulation.csv",
    log:
        "logs/{study}/figures/accumulation.log",
    params:
        spec=spec("draw_accumulation"),
    script:
        "../workflow_scripts/draw_accumulation.py"


rule draw_precision_drift:
    """Draws how far loss and gradients are from fp32's."""
    input:
        autocast_steps="results/{study}/tables/autocast_steps.csv",
    output:
        figure="results/{study}/figures/precision_drift.svg",
        data="results/{study}/figures/precision_drift.csv",
    log:
        "logs/{study}/figures/precision_drift.log",
    params:
        spec=spec("draw_precision_drift"),
    script:
        "../workflow_scripts/draw_precision_drift.py"


rule draw_clocks:
    """Draws one step under several clocks."""
    input:
        clocks="results/{study}/tables/clocks.csv",
    output:
        figure="results/{study}/figures/clocks.svg",
        data="results/{study}/figures/clocks.csv",
    log:
        "logs/{study}/figures/clocks.log",
    params:
        spec=spec("draw_clocks"),
    script:
        "../workflow_scripts/draw_clocks.py"


rule draw_operator_modes:
    """Draws where the time of each pass goes, by kind of work."""
    input:
        operator_probes="results/{study}/tables/operator_probes.csv",
    output:
        figure="results/{study}/figures/operator_modes.svg",
        data="results/{study}/figures/operator_modes.csv",
    log:
        "logs/{study}/figures/operator_modes.log",
    params:
        spec=spec("draw_operator_modes"),
    script:
        "../workflow_scripts/draw_operator_modes.py"


rule draw_operator_roofline:
    """Draws the kinds of work of each pass below the roofline."""
    input:
        operator_probes="results/{study}/tables/operator_probes.csv",
        ceilings="results/{study}/tables/ceilings.csv",
    output:
        figure="results/{study}/figures/operator_roofline.svg",
        data="results/{study}/figures/operator_roofline.csv",
    log:
        "logs/{study}/figures/operator_roofline.log",
    params:
        spec=spec("draw_operator_roofline"),
    script:
        "../workflow_scripts/draw_operator_roofline.py"


rule draw_warm_up:
    """Draws what discarding the first steps is worth."""
    input:
        warm_up="results/{study}/tables/warm_up.csv",
    output:
        figure="results/{study}/figures/warm_up.svg",
        data="results/{study}/figures/warm_up.csv",
    log:
        "logs/{study}/figures/warm_up.log",
    params:
        spec=spec("draw_warm_up"),
    script:
        "../workflow_scripts/draw_warm_up.py"
