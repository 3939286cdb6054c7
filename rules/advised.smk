"""What a recommendation depends on, and what depends on it, a checkpoint as the selection is.

Only functions stand here; recommendation.smk uses them as params.
"""

import json
from pathlib import Path


def recommendation_spec(wildcards):
    """The question that is asked of every device; its model is built as the selection's are, or the first one named."""
    config = STUDY.config
    asked = config["selection"] or config["models"][0]
    return spec(
        "recommend_training",
        recommendation=config["recommendation"],
        model={
            "architecture": asked["architecture"],
            "bias": asked.get("bias", True),
        },
        vocab_size=STUDY.vocab_size,
        sequence_length=config["training"]["sequence_length"],
        steps={
            device: to_json(STUDY.training_step(device)) for device in STUDY.devices
        },
        recorded_steps={
            kind: to_json(STUDY.recorded_step(kind)) for kind in ["cpu", "cuda", "mps"]
        },
        optimizer=to_json(STUDY.timed_optimizer),
        measure=config["grid"]["measure"],
        devices={device: to_json(values) for device, values in STUDY.devices.items()},
        limits_bytes={device: room.limit_bytes for device, room in ROOMS.items()},
    )


def recommended_cell_spec(wildcards):
    """The cell that checks what is recommended on a device, or the reason why there is none.

    By it the check waits for the recommendation without depending on its file: an equal one is not timed again.
    """
    advised = Path(
        checkpoints.recommend_training.get(study=STUDY.name).output.recommendation
    )
    found = json.loads(advised.read_text(encoding="utf-8"))["devices"][wildcards.device]
    return measured_spec(
        "check_recommendation",
        wildcards.device,
        cell=found["cell"],
        reason=found["reason"],
    )
