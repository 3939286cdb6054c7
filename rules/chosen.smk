"""What depends on the selection, a checkpoint: the shapes of the trained models, their runs and profiles.

Only functions stand here; rules use them as inputs and params.
"""

import json
from pathlib import Path

from workflow_scripts.lib.fits import outsized
from workflow_scripts.lib.specs import ModelShape, from_json
from workflow_scripts.lib.study import ROLES

RUN_FILES = ["run.json", "metrics.csv", "samples.txt"]


def chosen(wildcards):
    """Makes a job wait for the selection without depending on its file: an equal choice trains nothing again."""
    if STUDY.needs_selection:
        checkpoints.select_models.get(study=STUDY.name)
    return []


def shape_of(name):
    """The shape of a trained model: of the selection if it is a role, else as the config names it."""
    if name not in ROLES:
        return STUDY.shape(name, STUDY.config["training"]["sequence_length"])
    chosen = Path(checkpoints.select_models.get(study=STUDY.name).output.selection)
    role = json.loads(chosen.read_text(encoding="utf-8"))["roles"][name]
    return from_json(ModelShape, role["shape"])


def trained(wildcards):
    """Every run's artifacts but the weights, once the models are chosen."""
    chosen(wildcards)
    return expand(
        "results/{study}/devices/{device}/runs/{run}/{file}",
        study=STUDY.name,
        device=STUDY.devices,
        run=STUDY.runs,
        file=RUN_FILES,
    )


def profiled(wildcards):
    """Every profile's artifacts, once the models are chosen."""
    chosen(wildcards)
    return expand(
        "results/{study}/devices/{device}/profiles/{name}/{file}",
        study=STUDY.name,
        device=STUDY.devices,
        name=STUDY.trained,
        file=["profile.json", "operators.csv", "trace.json.gz"],
    )


def left_by_device(wildcards):
    """All that one device left but weights and traces, and what tells of its study."""
    device = f"results/{STUDY.name}/devices/{wildcards.device}/"
    records = [*DEVICES, *CALIBRATIONS, *CELLS, *MEMORY, *TIMERS, *PROBE_RECORDS]
    records += CHECKS
    records += [*trained(wildcards), *profiled(wildcards)]
    return {
        "records": [
            path
            for path in records
            if path.startswith(device) and not path.endswith(".gz")
        ],
        "about": [STUDY_FILE, f"results/{STUDY.name}/corpus/corpus.json", *SELECTION],
    }


def run_spec(wildcards):
    """One run, complete, with the shape of its model."""
    shape = shape_of(STUDY.runs[wildcards.run].name)
    run = STUDY.run(wildcards.device, wildcards.run, shape)
    return measured_spec(
        "train_model",
        wildcards.device,
        run=to_json(run),
        **outsized(
            ROOMS[wildcards.device], run.model, run.step, run.optimizer, run.n_steps
        ),
    )


def profile_spec(wildcards):
    """One profile, complete, with the shape of its model."""
    profile = STUDY.profile(wildcards.device, wildcards.name, shape_of(wildcards.name))
    return measured_spec(
        "profile_model",
        wildcards.device,
        profile=to_json(profile),
        **outsized(
            ROOMS[wildcards.device],
            profile.model,
            profile.step,
            profile.optimizer,
            profile.warmup_steps + profile.n_steps,
        ),
    )


def run_files(file):
    """One file of every run, as an input function."""

    def files(wildcards):
        return [path for path in trained(wildcards) if Path(path).name == file]

    return files


def profile_files(file):
    """One file of every profile, as an input function."""

    def files(wildcards):
        return [path for path in profiled(wildcards) if Path(path).name == file]

    return files
