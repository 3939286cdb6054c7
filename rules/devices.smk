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
