"""What defines the work of a study, by key of its config: two devices are compared only where all of it is equal."""

from typing import Any

from workflow_scripts.lib.specs import to_json
from workflow_scripts.lib.study import Study
from workflow_scripts.lib.treatments import plan_treatments

# Keys of training that say how often and how something is run or shown, and not what is computed.
HOW = frozenset("models seeds treatment_seeds execution factors design checkpoint_every_s sample timeout_s".split())


def defined_work(study: Study, source_digest: str) -> dict[str, Any]:
    """Gives the values that a recording must agree with, flat: `training.n_steps`, `models.narrow` …

    Models and treatments are told one by one, so that one study may have more of them than the other.

    Args:
        study: the study as resolved.
        source_digest: SHA-256 of the corpus's text, which may lie under another path elsewhere.
    """
    corpus = {key: value for key, value in study.config["corpus"].items() if key not in ("source", "path")}
    training = {key: value for key, value in study.config["training"].items() if key not in HOW}
    if not study.config["training"]["models"]:
        training = {"optimizer": training["optimizer"]}  # of the grid's steps; nothing else of it is used
    length = study.config["training"]["sequence_length"]
    work = _flat("corpus", {**corpus, "text": source_digest, "entries": study.vocab_size})
    work |= {f"models.{model['name']}": to_json(study.shape(model["name"], length)) for model in study.config["models"]}
    work |= _flat("training", training)
    treatments = plan_treatments(study.config["training"])
    work |= {f"training, treatment {name}": treatment.changes for name, treatment in treatments.items()}
    if study.needs_selection and study.config["selection"]["adopt"]:
        wanted = study.config["selection"]
        work |= _flat("selection", {key: wanted[key] for key in wanted if key not in ("budgets", "adopt")})
    return work


def _flat(place: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {key: one for name, part in value.items() for key, one in _flat(f"{place}.{name}", part).items()}
    return {place: value}
