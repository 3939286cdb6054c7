"""Memory: what the steps of some cells take, in jobs of their own, since what traces memory slows the steps.

Input: tokens, corpus.json, device.json, calibration.json; what matters of them is in the spec.
Output: results/{study}/devices/{device}/memory/{cell}.json; results/{study}/tables/memory.csv.
Steps: measure_memory, collect_memory.
"""

MEMORY = [
    f"results/{STUDY.name}/devices/{device}/memory/{cell}.json"
    for device, cells in MEMORY_CELLS.items()
    for cell in cells
]


rule measure_memory:
    """Measures the memory of one cell's step, phase by phase."""
    input:
        unpack(
            measuring_inputs(
                "results/{study}/devices/{device}/memory/{cell}.json", memory_spec
            )
        ),
    output:
        record="results/{study}/devices/{device}/memory/{cell}.json",
    log:
        "logs/{study}/devices/{device}/memory/{cell}.log",
    threads: workflow.cores
    params:
        spec=memory_spec,
    script:
        "../workflow_scripts/measure_memory.py"


rule collect_memory:
    """Gathers the memory of all steps into one table, beside what was predicted."""
    input:
        memory=MEMORY,
        recordings=RECORDINGS,
    output:
        memory_table="results/{study}/tables/memory.csv",
    log:
        "logs/{study}/tables/memory.log",
    params:
        spec=spec("collect_memory"),
    script:
        "../workflow_scripts/collect_memory.py"
