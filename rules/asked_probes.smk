"""The probes that the study asks of each device.

Only functions and constants stand here; the rules are in probes.smk.
"""

from workflow_scripts.lib.probe_plan import probes_of

PROBES = {device: probes_of(STUDY, device) for device in STUDY.devices}
PROBE_RECORDS = [
    f"results/{STUDY.name}/devices/{device}/probes/{probe}.json"
    for device, probes in PROBES.items()
    for probe in probes
]


def probe_spec(wildcards):
    """One probe, complete, with the code of its kind; the other kinds' code is no part of it."""
    probe = PROBES[wildcards.device][wildcards.probe]
    return measured_spec(
        "run_probe",
        wildcards.device,
        probe=to_json(probe),
        kind_code=code_digest(f"workflow_scripts/lib/probes/{probe.kind}.py"),
    )
