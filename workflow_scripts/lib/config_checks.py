"""Reads the config of a study and checks it as a whole, before any job is planned.

Each fault is a `ValueError` of one line that names the key, its value and the remedy.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workflow_scripts.lib.config_schema import suggest, validate_config
from workflow_scripts.lib.config_text import check_config_text, normalise
from workflow_scripts.lib.probe_plan import check_probes
from workflow_scripts.lib.study import ROLES
from workflow_scripts.lib.treatments import BASELINE, plan_treatments


def read_config(config: dict[str, Any], files: Sequence[Path], schema: Path) -> dict[str, Any]:
    """Normalises and validates a config that the engine has merged from `files`.

    Raises:
        ValueError: one line that names the key, its value and the remedy.
    """
    for file in files:
        check_config_text(file)
    config = normalise(config)
    validate_config(config, schema)
    check_config(config)
    return config


def check_config(config: dict[str, Any]) -> None:
    """Checks what a schema cannot: how the keys of a study go together.

    Raises:
        ValueError: one line that names the key, its value and the remedy.
    """
    names = [model["name"] for model in config["models"]]
    _refuse_duplicates("models", names)
    for model in config["models"]:
        _check_heads(f"models: {model['name']}", model["n_embd"], model["n_head"], model["architecture"])
        if model["name"] in ROLES:
            raise ValueError(f"models: {model['name']} is the name of a role: choose another name")
    for position, product in enumerate(config["grid"]["products"]):
        for axis, values in product.items():
            if isinstance(values, list):
                _refuse_duplicates(f"grid.products[{position}].{axis}", values)
        for key in ("memory", "cross_check"):
            if product.get(key, False) and product.get("mode", ["step"]) != ["step"]:
                raise ValueError(
                    f"grid.products[{position}].{key} is true with mode {product['mode']}: it concerns whole steps, "
                    "so give it in a product of mode [step]"
                )
        for name in product["models"]:
            if name not in names:
                raise ValueError(f"grid.products[{position}].models: {name} is no model: {suggest(name, names)}")
    check_probes(config)
    training, selection, corpus = config["training"], config["selection"], config["corpus"]
    if selection:
        _check_roles(selection["roles"])
    for axis in ("models", "seeds", "treatment_seeds"):
        _refuse_duplicates(f"training.{axis}", training[axis] or [])
    for name in training["models"]:
        if name in ROLES and selection is None:
            raise ValueError(f"training.models: {name} is a role, and selection is null: give a selection")
        if name in ROLES and name not in selection["roles"]:
            raise ValueError(f"training.models: {name} is a role that selection.roles does not fill: add it there")
        if name not in (*names, *ROLES):
            raise ValueError(f"training.models: {name} is neither role nor model: {suggest(name, [*names, *ROLES])}")
    _check_training(config)
    if (corpus["source"] == "path") != (corpus["path"] is not None):
        raise ValueError(f"corpus.path is {corpus['path']!r} with source {corpus['source']}: they go together")
    if (corpus["tokenizer"] == "bpe") != (corpus["vocab_size"] is not None):
        raise ValueError(
            f"corpus.vocab_size is {corpus['vocab_size']} with tokenizer {corpus['tokenizer']}: "
            "give a size for bpe, null for character"
        )
    if selection:
        for axis in ("n_embd", "n_layer"):
            if selection[axis]["min"] > selection[axis]["max"]:
                raise ValueError(f"selection.{axis}.min is {selection[axis]['min']}, more than max: swap them")


def _check_training(config: dict[str, Any]) -> None:
    """Checks the baseline and each treatment of it."""
    baseline = config["training"]
    models = {model["name"]: model for model in config["models"]}
    for name, treatment in plan_treatments(baseline).items():
        place = "training" if name == BASELINE else f"treatment {name}: training"
        training = treatment.training(baseline)
        if training["batch_size"] % training["accumulation"]:
            raise ValueError(
                f"{place}.accumulation is {training['accumulation']}, which does not divide "
                f"batch_size {training['batch_size']}: choose a divisor"
            )
        optimizer = training["optimizer"]
        if optimizer["warmup_steps"] > training["n_steps"]:
            raise ValueError(
                f"{place}.optimizer.warmup_steps is {optimizer['warmup_steps']}, more than "
                f"n_steps {training['n_steps']}: lower it"
            )
        if optimizer["min_learning_rate"] > optimizer["learning_rate"]:
            raise ValueError(
                f"{place}.optimizer.min_learning_rate is {optimizer['min_learning_rate']}, more than "
                f"learning_rate {optimizer['learning_rate']}: lower it"
            )
        for trained in baseline["models"] if {"n_embd", "n_head"} & treatment.model.keys() else ():
            if trained in ROLES:
                raise ValueError(
                    f"{place}.model sets n_embd or n_head, and {trained} is a role, whose width is not known yet: "
                    "train a named model"
                )
            shape = models[trained] | treatment.model
            _check_heads(f"{place}: {trained}", shape["n_embd"], shape["n_head"], shape["architecture"])


def check_lengths(config: dict[str, Any], characters: dict[str, int]) -> None:
    """Checks that every context, with the token after it, fits into both splits.

    Only characters can be counted before the text is tokenised; with byte pairs each job checks its own splits.

    Args:
        config: the whole config.
        characters: length of each split in characters.

    Raises:
        ValueError: names the split, its length, and the length that is asked for.
    """
    if config["corpus"]["tokenizer"] != "character":
        return
    asked = {f"grid.products[{i}]": max(p["sequence_length"]) for i, p in enumerate(config["grid"]["products"])}
    if config["training"]["models"]:
        treatments = plan_treatments(config["training"]).values()
        asked["training"] = max(each.training(config["training"])["sequence_length"] for each in treatments)
    for place, length in asked.items():
        for split, available in characters.items():
            if available < length + 1:
                raise ValueError(
                    f"{place}.sequence_length is {length}, and the {split} split has {available} characters, "
                    f"where it needs {length + 1}: shorten the context, or give a longer text"
                )


def _check_roles(roles: list[str]) -> None:
    _refuse_duplicates("selection.roles", roles)
    if ("wide" in roles) != ("deep" in roles) or ("balanced" in roles and "wide" not in roles):
        raise ValueError(
            f"selection.roles is {', '.join(roles)}: wide and deep are a pair, and balanced lies between them: "
            "give wide and deep together"
        )


def check_prices(prices: dict[str, float], devices: Sequence[str]) -> None:
    """Checks that every price is that of a device of the study, local or recorded.

    Raises:
        ValueError: names the price that belongs to none.
    """
    for device, price in prices.items():
        if device not in devices:
            raise ValueError(f"prices: {device} ({price:g}) is no device of this study: {suggest(device, devices)}")


def _check_heads(place: str, n_embd: int, n_head: int, architecture: str) -> None:
    if n_embd % n_head:
        raise ValueError(f"{place}: n_embd is {n_embd}, no multiple of n_head {n_head}: choose one")
    if architecture == "llama" and n_embd // n_head % 2:
        raise ValueError(f"{place}: n_embd / n_head is {n_embd // n_head}, odd: RoPE turns pairs, choose an even one")


def _refuse_duplicates(place: str, values: Sequence[Any]) -> None:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"{place}: {value} stands twice (numbers are compared by value): remove one")
