"""Recordings: what each local device left, packed for other machines, which read it as a further device.

Input: all records of the device, its runs' curves and samples, its profiles without traces, the selection.
Output: recordings/{study}/{device}.zip, and its manifest in results/, so that a recording that came with the repository,
or from elsewhere, does not count as this machine's.
Steps: pack_recording, for every local device by `snakemake recording`.
"""


rule pack_recording:
    """Packs what a device left."""
    input:
        unpack(left_by_device),
    output:
        recording="recordings/{study}/{device}.zip",
        manifest="results/{study}/devices/{device}/recording.json",
    log:
        "logs/{study}/devices/{device}/recording.log",
    params:
        spec=spec("pack_recording", study=STUDY.name, work=WORK),
    script:
        "../workflow_scripts/pack_recording.py"


rule recording:
    """Packs a recording of each local device."""
    input:
        expand(
            [
                "recordings/{study}/{device}.zip",
                "results/{study}/devices/{device}/recording.json",
            ],
            study=STUDY.name,
            device=STUDY.devices,
        ),
