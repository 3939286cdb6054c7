"""Probes: questions about a device that the grid does not answer, each a job and a process of its own.

Input: tokens, corpus.json, device.json, calibration.json; what matters of them is in the spec. Cells, for what their
first steps tell.
Output: results/{study}/devices/{device}/probes/{probe}.json; results/{study}/tables/attention.csv, accumulation.csv,
autocast.csv, autocast_steps.csv, clocks.csv, operator_probes.csv, operator_counts.csv, warm_up.csv, executions.csv.
Steps: run_probe; collect_probes; collect_cold_steps.
"""

PROBE_TABLES = expand(
    "results/{study}/tables/{table}.csv",
    study=STUDY.name,
    table=[
        "attention",
        "accumulation",
        "autocast",
        "autocast_steps",
        "clocks",
        "operator_probes",
        "operator_counts",
        "warm_up",
        "executions",
    ],
)


rule run_probe:
    """Carries out one probe of one device."""
    input:
        unpack(
            measuring_inputs(
                "results/{study}/devices/{device}/probes/{probe}.json", probe_spec
            )
        ),
    output:
        record="results/{study}/devices/{device}/probes/{probe}.json",
    log:
        "logs/{study}/devices/{device}/probes/{probe}.log",
    threads: workflow.cores
    params:
        spec=probe_spec,
    script:
        "../workflow_scripts/run_probe.py"


rule collect_probes:
    """Gathers the probes of all devices into a table for each kind."""
    input:
        probes=PROBE_RECORDS,
        recordings=RECORDINGS,
        ceilings="results/{study}/tables/ceilings.csv",
    output:
        attention="results/{study}/tables/attention.csv",
        accumulation="results/{study}/tables/accumulation.csv",
        autocast="results/{study}/tables/autocast.csv",
        autocast_steps="results/{study}/tables/autocast_steps.csv",
        clocks="results/{study}/tables/clocks.csv",
        operator_probes="results/{study}/tables/operator_probes.csv",
        operator_counts="results/{study}/tables/operator_counts.csv",
    log:
        "logs/{study}/tables/probes.log",
    params:
        spec=spec("collect_probes"),
    script:
        "../workflow_scripts/collect_probes.py"


rule collect_cold_steps:
    """Tells from the cells what warm-up is worth, and when compiling has paid for itself."""
    input:
        cells=CELLS,
        recordings=RECORDINGS,
        cells_table="results/{study}/tables/cells.csv",
    output:
        warm_up="results/{study}/tables/warm_up.csv",
        executions="results/{study}/tables/executions.csv",
    log:
        "logs/{study}/tables/cold_steps.log",
    params:
        spec=spec("collect_cold_steps"),
    script:
        "../workflow_scripts/collect_cold_steps.py"
