"""Prediction: what the devices' operators cost one by one, and the roofline that cells and operators lie under.

Input: calibrations, and the recordings of other devices; cells.csv, ceilings.csv.
Output: results/{study}/tables/operator_costs.csv; results/{study}/figures/roofline.{svg,csv}.
Steps: collect_operator_costs, draw_roofline.
"""


rule collect_operator_costs:
    """Gathers the operators that the calibrations measured into one table."""
    input:
        calibrations=CALIBRATIONS,
        recordings=RECORDINGS,
    output:
        operator_costs="results/{study}/tables/operator_costs.csv",
    log:
        "logs/{study}/tables/operator_costs.log",
    params:
        spec=spec("collect_operator_costs"),
    script:
        "../workflow_scripts/collect_operator_costs.py"


rule draw_roofline:
    """Draws what cells and operators reach below the measured ceilings."""
    input:
        cells="results/{study}/tables/cells.csv",
        ceilings="results/{study}/tables/ceilings.csv",
        operator_costs="results/{study}/tables/operator_costs.csv",
        findings="results/{study}/findings.json",
    output:
        figure="results/{study}/figures/roofline.svg",
        data="results/{study}/figures/roofline.csv",
    log:
        "logs/{study}/figures/roofline.log",
    params:
        spec=spec("draw_roofline"),
    script:
        "../workflow_scripts/draw_roofline.py"
