"""The selection: two models of equal head count, matched on one quantity, that keep to the budgets on every device.

Input: cells.csv and the cost model fitted on it, corpus.json.
Output: results/{study}/selection.json with the reasons; the one checkpoint of the workflow.
Steps: select_models.
"""

SELECTION = [f"results/{STUDY.name}/selection.json"] if STUDY.needs_selection else []


checkpoint select_models:
    """Chooses the wide and the deep model."""
    input:
        cost_model="results/{study}/cost_model.json",
    output:
        selection="results/{study}/selection.json",
    log:
        "logs/{study}/selection.log",
    params:
        spec=spec(
            "select_models",
            selection=STUDY.config["selection"],
            step=to_json(STUDY.training_step),
            optimizer=to_json(STUDY.optimizer),
            n_steps=STUDY.config["training"]["n_steps"],
            sequence_length=STUDY.config["training"]["sequence_length"],
            vocab_size=STUDY.vocab_size,
            devices={device.id: device.type for device in STUDY.devices.values()},
        ),
    script:
        "../workflow_scripts/select_models.py"
