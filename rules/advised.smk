"""What a recommendation depends on: the time given, how models are trained, and the memory of each device.

Only functions stand here; recommendation.smk uses them as params.
"""


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
    """The cell that checks a recommendation; which one it is, recommendation.json says."""
    return measured_spec(
        "check_recommendation", wildcards.device, advised_on=wildcards.device
    )
