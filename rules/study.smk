"""The study: reads and checks the config, finds the devices, and gives the other rules what they need to know.

Input: config.yaml and its overlays, as merged by the engine.
Output: results/{study}/study.yaml, the whole config as resolved.
Steps: resolve_study.
"""

import sys
from pathlib import Path

from workflow_scripts.lib.config_checks import check_lengths, read_config
from workflow_scripts.lib.devices import detect_devices, environment, resolve_devices
from workflow_scripts.lib.provenance import code_digest, spec
from workflow_scripts.lib.sources import describe_source
from workflow_scripts.lib.specs import to_json
from workflow_scripts.lib.study import Study


def load_study():
    """Resolves the merged config, or ends with the one line that says what is wrong with it."""
    try:
        resolved = read_config(
            config,
            [Path(file) for file in workflow.configfiles],
            Path("config.schema.yaml"),
        )
        detected = detect_devices()
        devices = resolve_devices(resolved["devices"], detected)
        source = describe_source(resolved["corpus"])
        check_lengths(resolved, source.n_characters)
    except ValueError as fault:
        sys.exit(str(fault))
    study = Study(
        name=resolved["study"],
        config=resolved,
        devices={device.id: device for device in devices},
        vocab_size=source.vocab_size,
    )
    environments = {device.id: environment(device, detected) for device in devices}
    return study, environments, source


STUDY, ENVIRONMENTS, SOURCE = load_study()

# What defines the tokens: the text, how it becomes tokens, and the code that makes them.
DATA = {
    **STUDY.config["corpus"],
    "digest": SOURCE.digest,
    "code": code_digest("workflow_scripts/prepare_corpus.py"),
}


def measured_spec(script, device, **slice_of_config):
    """The spec of a measuring rule: what is measured, in which environment, on which data."""
    return spec(
        script,
        study=STUDY.name,
        environment=ENVIRONMENTS[device],
        data=DATA,
        **slice_of_config,
    )


wildcard_constraints:
    study=STUDY.name.replace(".", r"\."),
    device="|".join(STUDY.devices),
    cell="[^/]+",
    run="[^/]+",
    name="[^/]+",


STUDY_FILE = f"results/{STUDY.name}/study.yaml"


rule resolve_study:
    """Writes the whole config as resolved."""
    output:
        study="results/{study}/study.yaml",
    log:
        "logs/{study}/study.log",
    params:
        spec=spec(
            "resolve_study",
            config=STUDY.config,
            devices=[to_json(device) for device in STUDY.devices.values()],
        ),
    script:
        "../workflow_scripts/resolve_study.py"
