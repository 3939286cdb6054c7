"""Timers: a few cells timed once more, by Assay's sampler and by torch.utils.benchmark in turn, in one process.

Input: tokens, corpus.json, device.json, calibration.json; what matters of them is in the spec.
Output: results/{study}/devices/{device}/timers/{cell}.json; results/{study}/tables/timers.csv.
Steps: cross_check_timers, collect_timers.
"""

TIMERS = [
    f"results/{STUDY.name}/devices/{device}/timers/{cell}.json"
    for device, cells in CROSS_CHECKS.items()
    for cell in cells
]


rule cross_check_timers:
    """Times one cell with several timers, in turn, in one process."""
    input:
        unpack(
            measuring_inputs(
                "results/{study}/devices/{device}/timers/{cell}.json", cross_check_spec
            )
        ),
    output:
        record="results/{study}/devices/{device}/timers/{cell}.json",
    log:
        "logs/{study}/devices/{device}/timers/{cell}.log",
    threads: workflow.cores
    params:
        spec=cross_check_spec,
    script:
        "../workflow_scripts/cross_check_timers.py"


rule collect_timers:
    """Gathers what the timers found into one table, and says where they agree."""
    input:
        timers=TIMERS,
        recordings=RECORDINGS,
    output:
        timers_table="results/{study}/tables/timers.csv",
    log:
        "logs/{study}/tables/timers.log",
    params:
        spec=spec("collect_timers"),
    script:
        "../workflow_scripts/collect_timers.py"
