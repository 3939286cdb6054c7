"""The devices: who they are, what they can do at best, and whether what they do is right.

Output: results/{study}/devices/{device}/device.json, calibration.json.
Steps: identify_device, calibrate_device.
"""

DEVICES = expand(
    "results/{study}/devices/{device}/device.json",
    study=STUDY.name,
    device=STUDY.devices,
)
CALIBRATIONS = expand(
    "results/{study}/devices/{device}/calibration.json",
    study=STUDY.name,
    device=STUDY.devices,
)


def device_spec(wildcards):
    """The device as the study names it, in the environment that it is found in."""
    return spec(
        "identify_device",
        device=to_json(STUDY.devices[wildcards.device]),
        environment=ENVIRONMENTS[wildcards.device],
    )


def calibration_spec(wildcards):
    """What of the device the study uses: a further precision calibrates it anew, a further batch size does not."""
    return spec(
        "calibrate_device",
        device=to_json(STUDY.devices[wildcards.device]),
        environment=ENVIRONMENTS[wildcards.device],
        combinations=STUDY.combinations(wildcards.device),
        vocab_size=STUDY.vocab_size,
        sustain_s=float(STUDY.config["calibration"]["sustain_s"]),
    )


rule identify_device:
    """Records a device's identity, limits and torch's own view of it."""
    output:
        device="results/{study}/devices/{device}/device.json",
    log:
        "logs/{study}/devices/{device}/device.log",
    threads: workflow.cores
    params:
        spec=device_spec,
    script:
        "../workflow_scripts/identify_device.py"


rule calibrate_device:
    """Measures a device's ceilings and checks its clock and its arithmetic, before anything is timed on it."""
    input:
        device=ancient("results/{study}/devices/{device}/device.json"),
    output:
        calibration="results/{study}/devices/{device}/calibration.json",
    log:
        "logs/{study}/devices/{device}/calibration.log",
    threads: workflow.cores
    params:
        spec=calibration_spec,
    script:
        "../workflow_scripts/calibrate_device.py"
