"""Fits: how the prediction of what fits into each device's memory did.

Input: cells.csv; limits and decisions, as they were made when the workflow was read, through the spec.
Output: results/{study}/tables/fits.csv, a row a cell.
Steps: collect_fits.
"""


rule collect_fits:
    """Gathers what was decided on each cell's memory before it ran, beside what came of it."""
    input:
        cells="results/{study}/tables/cells.csv",
    output:
        fits="results/{study}/tables/fits.csv",
    log:
        "logs/{study}/tables/fits.log",
    params:
        spec=spec("collect_fits", devices=DECISIONS),
    script:
        "../workflow_scripts/collect_fits.py"
