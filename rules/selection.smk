"""The selection: models for the roles of the study, by prediction, that keep to the budgets on every device.

Input: cost model fitted on the cells, devices.csv; recordings whose models are adopted.
Output: results/{study}/selection.json with the reasons, the one checkpoint of the workflow; tables/candidates.csv, the
field that it chose from; figures/candidates.{svg,csv}.
Steps: select_models, draw_candidates.
"""

SELECTION = [f"results/{STUDY.name}/selection.json"] if STUDY.needs_selection else []
CANDIDATES = (
    [f"results/{STUDY.name}/tables/candidates.csv"] if STUDY.needs_selection else []
)


checkpoint select_models:
    """Chooses the model of each role."""
    input:
        cost_model="results/{study}/cost_model.json",
        devices="results/{study}/tables/devices.csv",
        recordings=ADOPTED,
    output:
        selection="results/{study}/selection.json",
        candidates="results/{study}/tables/candidates.csv",
    log:
        "logs/{study}/selection.log",
    params:
        spec=spec(
            "select_models",
            selection=STUDY.config["selection"],
            steps={
                device: to_json(STUDY.training_step(device))
                for device in STUDY.devices
            },
            recorded_steps={
                kind: to_json(STUDY.recorded_step(kind))
                for kind in ["cpu", "cuda", "mps"]
            },
            optimizer=to_json(STUDY.optimizer),
            n_steps=STUDY.config["training"]["n_steps"],
            sequence_length=STUDY.config["training"]["sequence_length"],
            vocab_size=STUDY.vocab_size,
        ),
    script:
        "../workflow_scripts/select_models.py"


rule draw_candidates:
    """Draws the field of candidates, the budgets, and where the chosen ones lie."""
    input:
        candidates=CANDIDATES,
        selection=SELECTION,
    output:
        figure="results/{study}/figures/candidates.svg",
        data="results/{study}/figures/candidates.csv",
    log:
        "logs/{study}/figures/candidates.log",
    params:
        spec=spec("draw_candidates"),
    script:
        "../workflow_scripts/draw_candidates.py"
