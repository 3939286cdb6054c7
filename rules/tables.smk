"""Tables: what was measured, one row a cell, run, operator or device, with the statistics derived once.

Input: the records, and the recordings of other devices.
Output: results/{study}/tables/*.csv and the cost model, fitted on the cells.
Steps: collect_cells, collect_runs, collect_operators, collect_devices, collect_ceilings.
"""

TABLES = expand(
    "results/{study}/tables/{table}.csv",
    study=STUDY.name,
    table=[
        "cells",
        "processes",
        "runs",
        "curves",
        "operators",
        "devices",
        "ceilings",
        "operator_costs",
        "memory",
        "fits",
        "timers",
    ],
)


rule collect_cells:
    """Gathers the cells into one table and fits the cost model on it."""
    input:
        cells=CELLS,
        memory=MEMORY,
        calibrations=CALIBRATIONS,
        recordings=RECORDINGS,
    output:
        cells_table="results/{study}/tables/cells.csv",
        processes="results/{study}/tables/processes.csv",
        cost_model="results/{study}/cost_model.json",
    log:
        "logs/{study}/tables/cells.log",
    params:
        spec=spec("collect_cells"),
    script:
        "../workflow_scripts/collect_cells.py"


rule collect_runs:
    """Gathers the runs into one table and their curves into another."""
    input:
        records=run_files("run.json"),
        metrics=run_files("metrics.csv"),
        recordings=RECORDINGS,
        selection=SELECTION,
        corpus="results/{study}/corpus/corpus.json",
    output:
        runs="results/{study}/tables/runs.csv",
        curves="results/{study}/tables/curves.csv",
    log:
        "logs/{study}/tables/runs.log",
    params:
        spec=spec("collect_runs"),
    script:
        "../workflow_scripts/collect_runs.py"


rule collect_operators:
    """Gathers the operators of all profiles into one table."""
    input:
        operators=profile_files("operators.csv"),
        recordings=RECORDINGS,
        selection=SELECTION,
    output:
        operators_table="results/{study}/tables/operators.csv",
    log:
        "logs/{study}/tables/operators.log",
    params:
        spec=spec("collect_operators"),
    script:
        "../workflow_scripts/collect_operators.py"


rule collect_devices:
    """Gathers the devices into one table."""
    input:
        devices=DEVICES,
        calibrations=CALIBRATIONS,
        recordings=RECORDINGS,
    output:
        devices_table="results/{study}/tables/devices.csv",
    log:
        "logs/{study}/tables/devices.log",
    params:
        spec=spec("collect_devices"),
    script:
        "../workflow_scripts/collect_devices.py"


rule collect_ceilings:
    """Gathers what the devices can do at best into one table, beside their datasheets."""
    input:
        calibrations=CALIBRATIONS,
        recordings=RECORDINGS,
        datasheets="resources/datasheets.csv",
    output:
        ceilings_table="results/{study}/tables/ceilings.csv",
    log:
        "logs/{study}/tables/ceilings.log",
    params:
        spec=spec("collect_ceilings"),
    script:
        "../workflow_scripts/collect_ceilings.py"
