"""The plan: what the study would take, for `snakemake plan`, which measures nothing.

Input: none; the cost model of an earlier run is read if there is one.
Output: none; the plan goes to the terminal and the log.
Steps: plan.
"""


rule plan:
    """Tells every cell and training with its predicted time and memory."""
    log:
        f"logs/{STUDY.name}/plan.log",
    params:
        spec=plan_spec,
    script:
        "../workflow_scripts/plan_study.py"
