"""The study, for every rule: the config checked, the devices found, and the spec of each measurement.

Only functions and constants stand here; what depends on the selection is in chosen.smk.
"""

import sys
from pathlib import Path

from workflow_scripts.lib.config_checks import (
    check_lengths,
    check_prices,
    read_config,
)
from workflow_scripts.lib.devices import (
    captures_graphs,
    detect_devices,
    environment,
    left_out,
    resolve_devices,
)
from workflow_scripts.lib.fits import beyond, caps, room
from workflow_scripts.lib.provenance import code_digest, spec
from workflow_scripts.lib.recordings import adopted, read_recordings
from workflow_scripts.lib.records import is_current
from workflow_scripts.lib.sources import describe_source
from workflow_scripts.lib.specs import to_json
from workflow_scripts.lib.study import Study
from workflow_scripts.lib.work import defined_work


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
        if resolved["devices"] == "auto":
            for line in left_out(detected):
                logger.warning(line)
        source = describe_source(resolved["corpus"])
        check_lengths(resolved, source.n_characters)
    except ValueError as fault:
        sys.exit(str(fault))
    study = Study(
        name=resolved["study"],
        config=resolved,
        devices={device.id: device for device in devices},
        vocab_size=source.vocab_size,
        capturing=frozenset(d.id for d in devices if captures_graphs(d, detected)),
    )
    environments = {device.id: environment(device, detected) for device in devices}
    cap = caps(resolved["devices"], devices)
    rooms = {
        device.id: room(
            device,
            cap.get(device.id),
            detected,
            source.vocab_size,
            source.n_characters["train"],
        )
        for device in devices
    }
    return study, environments, source, rooms


STUDY, ENVIRONMENTS, SOURCE, ROOMS = load_study()

# What defines the tokens: the text, how it becomes tokens, and the code that makes them.
DATA = {
    **STUDY.config["corpus"],
    "digest": SOURCE.digest,
    "code": code_digest("workflow_scripts/prepare_corpus.py"),
}

GRID = {device: STUDY.cells(device) for device in STUDY.devices}
BEYOND = {
    device: beyond(cells.values(), ROOMS[device]) for device, cells in GRID.items()
}
DECISIONS = {
    device: {
        "limit_bytes": ROOMS[device].limit_bytes,
        "capped": ROOMS[device].capped,
        "beyond": {cell: to_json(verdict) for cell, verdict in cells.items()},
    }
    for device, cells in BEYOND.items()
}
MEMORY_CELLS = {device: STUDY.memory_cells(device) for device in STUDY.devices}
CROSS_CHECKS = {device: STUDY.cross_checks(device) for device in STUDY.devices}
ORDER = {
    device: {cell: place for place, cell in enumerate(cells)}
    for device, cells in GRID.items()
}

WORK = defined_work(STUDY, SOURCE.digest)


def load_recordings():
    """The recordings of further devices, and those whose models are adopted, or one line on what is wrong."""
    folder = Path("recordings") / STUDY.name
    ignored = STUDY.config["recordings"] == "ignore"
    local = {device: ENVIRONMENTS[device]["name"] for device in STUDY.devices}
    try:
        recorded = (
            []
            if ignored
            else read_recordings(folder, study=STUDY.name, work=WORK, local=local)
        )
        if not (STUDY.devices or recorded):
            raise ValueError(
                f"devices: [] measures nothing, and no recording of {folder} is read: name a device, or add a recording"
            )
        adopts = STUDY.needs_selection and STUDY.config["selection"]["adopt"]
        return recorded, adopted(recorded) if adopts else []
    except ValueError as fault:
        sys.exit(str(fault))


RECORDED, ADOPTED = load_recordings()
try:
    check_prices(
        STUDY.config["prices"], [*STUDY.devices, *(device.id for device in RECORDED)]
    )
except ValueError as fault:
    sys.exit(str(fault))
RECORDINGS = [device.path.as_posix() for device in RECORDED]

# What measures here, for the audit of what was measured elsewhere: by kind of record, the digests of the code that
# makes it.
MEASURING = {
    "device": ["identify_device"],
    "calibration": ["calibrate_device"],
    "cell": ["benchmark_cell", "check_recommendation"],
    "memory": ["measure_memory"],
    "timers": ["cross_check_timers"],
    "run": ["train_model"],
    "profile": ["profile_model"],
    "probe": ["run_probe"],
}
MEASURED_BY = {
    "torch": sorted({found["torch"] or "" for found in ENVIRONMENTS.values()}),
    "code": {
        kind: [code_digest(f"workflow_scripts/{script}.py") for script in scripts]
        for kind, scripts in MEASURING.items()
        if RECORDED
    },
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


def left_out(device, cell):
    """What a cell's spec says of its memory: the bytes that it would need where it is not tried, else nothing."""
    verdict = BEYOND[device].get(cell)
    return (
        {}
        if verdict is None or verdict.tried
        else {"predicted_oom": verdict.needed_bytes}
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
        operators_s=float(STUDY.config["calibration"]["operators_s"]),
    )


def cell_spec(wildcards):
    """One cell, complete."""
    cell = GRID[wildcards.device][wildcards.cell]
    return measured_spec(
        "benchmark_cell",
        wildcards.device,
        cell=to_json(cell),
        **left_out(wildcards.device, wildcards.cell),
    )


def cell_priority(wildcards):
    """Earlier in the shuffled order is sooner; the grid comes before what needs it."""
    return 10_000 - ORDER[wildcards.device][wildcards.cell]


def memory_spec(wildcards):
    """One step, without when it would have been timed enough."""
    memory = MEMORY_CELLS[wildcards.device][wildcards.cell]
    return measured_spec(
        "measure_memory",
        wildcards.device,
        memory=to_json(memory),
        **left_out(wildcards.device, wildcards.cell),
    )


def cross_check_spec(wildcards):
    """One cell, complete."""
    cell = CROSS_CHECKS[wildcards.device][wildcards.cell]
    return measured_spec(
        "cross_check_timers",
        wildcards.device,
        cell=to_json(cell),
        **left_out(wildcards.device, wildcards.cell),
    )


def measuring_inputs(record, spec_of):
    """What a measuring job reads, as an input function.

    Only its spec decides whether a measurement is made again. While that stands, its inputs are ancient. Once it has
    changed, they must not be: behind an input that is made anew in the same run, the engine does not look at the params
    of a job whose inputs are all ancient.
    """

    def inputs(wildcards):
        age = (
            ancient
            if is_current(Path(record.format(**wildcards)), spec_of(wildcards))
            else str
        )
        return {
            "tokens": age(f"results/{STUDY.name}/corpus/tokens.bin"),
            "corpus": age(f"results/{STUDY.name}/corpus/corpus.json"),
            "device": age(
                f"results/{STUDY.name}/devices/{wildcards.device}/device.json"
            ),
            "calibration": age(
                f"results/{STUDY.name}/devices/{wildcards.device}/calibration.json"
            ),
        }

    return inputs


wildcard_constraints:
    study=STUDY.name.replace(".", r"\."),
    device="|".join(STUDY.devices) or "-",
    cell="[^/]+",
    probe="[^/]+",
    run="[^/]+",
    name="[^/]+",
