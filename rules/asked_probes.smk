"""The probes that the study asks of each device.

Only functions and constants stand here; the rules are in probes.smk.
"""

from workflow_scripts.lib.probe_plan import probes_of

try:
    PROBES = {device: probes_of(STUDY, device) for device in STUDY.devices}
except ValueError as fault:
    sys.exit(str(fault))
PROBE_RECORDS = [
    f"results/{STUDY.name}/devices/{device}/probes/{probe}.json"
    for device, probes in PROBES.items()
    for probe in probes
]

# The figures of each kind of probe; a study that asks for none of a kind has none of them.
FIGURES_OF_PROBES = {
    "attention": ["attention", "attention_memory"],
    "accumulation": ["accumulation"],
    "autocast": ["precision_drift"],
    "clocks": ["clocks"],
    "operators": ["operator_modes", "operator_roofline"],
    "memory": ["memory_timeline"],
}
PROBE_FIGURES = ["warm_up"] + [
    figure
    for kind, figures in FIGURES_OF_PROBES.items()
    if kind in {entry["kind"] for entry in STUDY.config["probes"]}
    for figure in figures
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
