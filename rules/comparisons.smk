"""What the trainings say, beyond their curves: devices beside each other, slow steps, convergence, optimizers.

Input: the tables, the records of the runs, recordings, the cost model.
Output: results/{study}/tables/device_comparison.csv, spikes.csv, convergence.csv, optimizer_sweep.csv.
Steps: compare_devices; find_spikes; judge_trainings.
"""

COMPARISON_TABLES = expand(
    "results/{study}/tables/{table}.csv",
    study=STUDY.name,
    table=[
        "device_comparison",
        "spikes",
        "convergence",
        "optimizer_sweep",
    ],
)


rule compare_devices:
    """Compares every two devices at each model that both trained."""
    input:
        runs="results/{study}/tables/runs.csv",
        curves="results/{study}/tables/curves.csv",
        cells="results/{study}/tables/cells.csv",
        ceilings="results/{study}/tables/ceilings.csv",
        cost_model="results/{study}/cost_model.json",
        records=run_files("run.json"),
        recordings=RECORDINGS,
    output:
        comparison="results/{study}/tables/device_comparison.csv",
    log:
        "logs/{study}/tables/device_comparison.log",
    params:
        spec=spec(
            "compare_devices",
            prices=STUDY.config["prices"],
            currency=STUDY.config["currency"],
        ),
    script:
        "../workflow_scripts/compare_devices.py"


rule find_spikes:
    """Finds the slow steps of each training, and what may have made them."""
    input:
        records=run_files("run.json"),
        metrics=run_files("metrics.csv"),
        recordings=RECORDINGS,
        selection=SELECTION,
    output:
        spikes="results/{study}/tables/spikes.csv",
    log:
        "logs/{study}/tables/spikes.log",
    params:
        spec=spec("find_spikes"),
    script:
        "../workflow_scripts/find_spikes.py"


rule judge_trainings:
    """Judges where each training converged, and which learning rate is the best of each optimizer."""
    input:
        runs="results/{study}/tables/runs.csv",
        curves="results/{study}/tables/curves.csv",
    output:
        convergence="results/{study}/tables/convergence.csv",
        optimizers="results/{study}/tables/optimizer_sweep.csv",
    log:
        "logs/{study}/tables/convergence.log",
    params:
        spec=spec("judge_trainings"),
    script:
        "../workflow_scripts/judge_trainings.py"
