"""What a study would measure, told by `snakemake plan`: its cells, and its trainings as far as their models are known.

Only functions stand here; plan.smk uses them as params.
"""

import json
from pathlib import Path

from workflow_scripts.lib.fits import N_RATES, needed_bytes


def known_shapes():
    """The shapes of what is trained: of the config, and of an earlier selection if there is one."""
    file = Path(f"results/{STUDY.name}/selection.json")
    roles = (
        json.loads(file.read_text(encoding="utf-8"))["roles"] if file.is_file() else {}
    )
    length = STUDY.config["training"]["sequence_length"]
    shapes = {
        name: STUDY.shape(name, length) for name in STUDY.trained if name not in ROLES
    }
    return shapes | {
        name: from_json(ModelShape, role["shape"]) for name, role in roles.items()
    }


def planned_cell(device, cell):
    """A cell, complete, and the memory that it needs."""
    needed = needed_bytes(
        ROOMS[device], cell.model, cell.step, cell.optimizer, N_RATES, cell.mode
    )
    return {"cell": to_json(cell), "needed_bytes": needed}


def planned_run(device, name, shapes):
    """A training, complete, and the memory that it needs; only its name where its model is not selected yet."""
    shape = shapes.get(STUDY.runs[name].name)
    if shape is None:
        return {"device": device, "id": name}
    run = STUDY.run(device, name, shape)
    needed = needed_bytes(
        ROOMS[device], run.model, run.step, run.optimizer, run.n_steps
    )
    return {"run": to_json(run), "needed_bytes": needed}


def plan_spec(wildcards):
    """All cells and trainings of the study, on each device."""
    shapes = known_shapes()
    cells = [
        planned_cell(device, cell)
        for device, cells in GRID.items()
        for cell in cells.values()
    ]
    runs = [
        planned_run(device, run, shapes)
        for device in STUDY.devices
        for run in STUDY.runs
    ]
    return spec(
        "plan_study",
        planned=cells + runs,
        devices=[{"device": device, **found} for device, found in ENVIRONMENTS.items()],
        cost_model=f"results/{STUDY.name}/cost_model.json",
    )
