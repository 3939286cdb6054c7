"""Training: each model, on each device, with each seed, to its end.

Input: tokens, corpus.json, device.json, calibration.json; the chosen model's shape through the spec.
Output: results/{study}/devices/{device}/runs/{run}/: run.json, metrics.csv, model.safetensors, samples.txt.
Steps: train_model.
"""


rule train_model:
    """Trains one model with one seed."""
    input:
        unpack(
            measuring_inputs(
                "results/{study}/devices/{device}/runs/{run}/run.json", run_spec
            )
        ),
    output:
        record="results/{study}/devices/{device}/runs/{run}/run.json",
        metrics="results/{study}/devices/{device}/runs/{run}/metrics.csv",
        weights="results/{study}/devices/{device}/runs/{run}/model.safetensors",
        samples="results/{study}/devices/{device}/runs/{run}/samples.txt",
    log:
        "logs/{study}/devices/{device}/runs/{run}/run.log",
    threads: workflow.cores
    params:
        spec=run_spec,
    script:
        "../workflow_scripts/train_model.py"
