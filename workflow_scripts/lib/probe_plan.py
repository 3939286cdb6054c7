"""The probes that a study asks for: each entry of the config's `probes`, completed."""

from typing import Any

from workflow_scripts.lib.config_schema import suggest
from workflow_scripts.lib.probe_specs import KINDS, Probe
from workflow_scripts.lib.specs import MemorySpec, StepSpec, from_json, to_json
from workflow_scripts.lib.study import Study

# What an entry of the config may leave out.
DEFAULTS: dict[str, dict[str, Any]] = {
    "attention": {
        "batch_size": 8, "n_head": 1, "head_sizes": [16, 32, 64, 128],
        "sequence_lengths": [256, 512, 1024, 2048, 4096, 8192, 16384], "precisions": ["fp32", "bf16"],
        "backends": ["math", "efficient", "flash", "cudnn", "flex"], "compiled": [False, True], "passes": 100,
        "max_seconds": 2.0, "timeout_s": 600.0,
    },
    "accumulation": {"constant": 0.01, "terms": 1000, "timeout_s": 120.0},
    "autocast": {"batch_size": 8, "sequence_length": 128, "precisions": ["bf16", "fp16"], "n_steps": 20,
                 "timeout_s": 300.0},
    "clocks": {"batch_size": 4, "sequence_lengths": [128, 256, 512], "precision": "fp32", "execution": "eager",
               "attention": "auto", "modes": ["forward", "step"], "n_steps": 20, "timeout_s": 600.0},
    "operators": {"batch_size": 4, "sequence_length": 128, "precision": "fp32", "execution": "eager",
                  "attention": "auto", "modes": ["forward", "forward_backward", "step"], "warmup_steps": 3,
                  "n_steps": 3, "timeout_s": 300.0},
    "isolation": {"cells": [], "timeout_s": 600.0},
    "memory": {"batch_size": 16, "sequence_lengths": [128], "precisions": ["fp32", "bf16"], "attention": "auto",
               "checkpointing": False, "modes": ["forward", "step"], "timeout_s": 300.0},
    "allocations": {"warmup_steps": 3, "n_steps": 3, "timeout_s": 300.0},
}  # fmt: skip


def probes_of(study: Study, device: str) -> dict[str, Probe]:
    """The probes that a study asks of a device, by name, complete."""
    return {
        entry["name"]: _complete(study, device, entry)
        for entry in study.config["probes"]
        if study.devices[device].type in entry.get("devices", [study.devices[device].type])
    }


def _complete(study: Study, device: str, entry: dict[str, Any]) -> Probe:
    kind = entry["kind"]
    asked = DEFAULTS[kind] | {key: value for key, value in entry.items() if key not in ("name", "kind", "devices")}
    values: dict[str, Any] = {"id": entry["name"], "kind": kind, "device": to_json(study.devices[device])}
    if kind == "allocations":
        values["name"] = asked.pop("model")
        values["treated"] = _treated(study, device, entry["name"], values["name"], asked["timeout_s"])
    elif "model" in asked:
        values |= {"name": asked.pop("model"), "optimizer": to_json(study.timed_optimizer)}
        lengths = asked.pop("sequence_lengths", None)
        if lengths:
            values["models"] = [to_json(study.shape(values["name"], length)) for length in lengths]
        else:
            values["model"] = to_json(study.shape(values["name"], asked.pop("sequence_length")))
    if kind == "memory":
        kept = {key: asked.pop(key) for key in ("batch_size", "attention", "checkpointing")}
        steps = [StepSpec(precision=name, execution="eager", **kept) for name in asked.pop("precisions")]
        values["steps"] = [to_json(step) for step in steps]
    if kind in ("clocks", "operators"):
        axes: dict[str, Any] = {key: asked.pop(key) for key in ("batch_size", "precision", "execution", "attention")}
        values["step"] = to_json(StepSpec(**axes))
    if kind == "isolation":
        grid = study.cells(device)
        for cell in asked["cells"]:
            if cell not in grid:
                raise ValueError(f"probes: {entry['name']} has the cell {cell}, which the grid of {device} has not: "
                                 f"{suggest(cell, list(grid))}")  # fmt: skip
        asked["cells"] = [to_json(grid[cell]) for cell in asked["cells"]]
    return from_json(KINDS[kind], values | asked)


def _treated(study: Study, device: str, probe: str, model: str, timeout_s: float) -> list[dict[str, Any]]:
    """The step of a trained model under each treatment of the study."""
    if model not in study.trained:
        raise ValueError(f"probes: {probe} has the model {model}, which is not trained: "
                         f"{suggest(model, study.trained)}")  # fmt: skip
    training = study.config["training"]
    shape, seed = study.shape(model, training["sequence_length"]), training["seeds"][0]
    runs = [
        study.run(device, run, shape)
        for run, planned in study.runs.items()
        if (planned.name, planned.seed) == (model, seed)
    ]
    return [
        to_json(
            MemorySpec(
                id=run.treatment,
                device=run.device,
                model=run.model,
                step=run.step,
                optimizer=run.optimizer,
                timeout_s=timeout_s,
                seed=run.seed,
            )
        )
        for run in runs
    ]


def check_probes(config: dict[str, Any]) -> None:
    """Checks that each probe has the keys of its kind, a name of its own, and a model that there is.

    Raises:
        ValueError: one line that names the key, its value and the remedy.
    """
    names = [model["name"] for model in config["models"]]
    seen: set[str] = set()
    for position, entry in enumerate(config["probes"]):
        place, kind = f"probes[{position}]", entry["kind"]
        if entry["name"] in seen:
            raise ValueError(f"{place}.name is {entry['name']}, which another probe has: choose another name")
        seen.add(entry["name"])
        needs_model = kind not in ("attention", "accumulation", "isolation")
        known = ["name", "kind", "devices", *DEFAULTS[kind], *(["model"] if needs_model else [])]
        for key in entry:
            if key not in known:
                raise ValueError(f"{place}.{key} is {entry[key]!r}, and a probe of kind {kind} has no such key: "
                                 f"{suggest(key, known)}")  # fmt: skip
        if kind == "memory" and "optimizer" in entry.get("modes", []):
            raise ValueError(f"{place}.modes has optimizer, of which a memory probe knows nothing alone: "
                             "give forward, forward_backward or step")  # fmt: skip
        if kind == "isolation" and "cells" not in entry:
            raise ValueError(f"{place}.cells is missing: name cells of the grid, in the order of their measurement")
        if needs_model and entry.get("model") not in names:
            given = entry.get("model", "missing")
            raise ValueError(f"{place}.model is {given}, no name of a model: {suggest(given, names)}")
