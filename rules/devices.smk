"""The devices: who they are and what they can do.

Output: results/{study}/devices/{device}/device.json.
Steps: identify_device.
"""

DEVICES = expand(
    "results/{study}/devices/{device}/device.json",
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
