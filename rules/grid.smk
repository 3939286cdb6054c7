"""The grid: every cell timed alone, in a process of its own, in shuffled order.

Input: tokens, corpus.json, device.json, calibration.json; what matters of them is in the spec.
Output: results/{study}/devices/{device}/cells/{cell}.json, one record a cell, whatever became of it.
Steps: benchmark_cell.
"""

CELLS = [
    f"results/{STUDY.name}/devices/{device}/cells/{cell}.json"
    for device, cells in GRID.items()
    for cell in cells
]


rule benchmark_cell:
    """Times the steps of one cell."""
    input:
        unpack(
            measuring_inputs(
                "results/{study}/devices/{device}/cells/{cell}.json", cell_spec
            )
        ),
    output:
        record="results/{study}/devices/{device}/cells/{cell}.json",
    log:
        "logs/{study}/devices/{device}/cells/{cell}.log",
    priority: cell_priority
    threads: workflow.cores
    params:
        spec=cell_spec,
    script:
        "../workflow_scripts/benchmark_cell.py"
