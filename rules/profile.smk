"""Profiles: where the time of a training step goes, operator by operator, for each trained model and device.

Input: tokens, corpus.json, device.json, calibration.json; the chosen model's shape through the spec.
Output: results/{study}/devices/{device}/profiles/{name}/: profile.json, operators.csv, trace.json.gz (for Perfetto).
Steps: profile_model.
"""


rule profile_model:
    """Profiles some training steps of one model."""
    input:
        unpack(
            measuring_inputs(
                "results/{study}/devices/{device}/profiles/{name}/profile.json",
                profile_spec,
            )
        ),
    output:
        record="results/{study}/devices/{device}/profiles/{name}/profile.json",
        operators="results/{study}/devices/{device}/profiles/{name}/operators.csv",
        trace="results/{study}/devices/{device}/profiles/{name}/trace.json.gz",
    log:
        "logs/{study}/devices/{device}/profiles/{name}/profile.log",
    threads: workflow.cores
    params:
        spec=profile_spec,
    script:
        "../workflow_scripts/profile_model.py"
