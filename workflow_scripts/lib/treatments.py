"""Treatments: named, exact changes to how a study trains, made of the levels of its factors.

A level is a difference to `training`, told as the same keys with other values; `model` in it changes the trained shape.
A treatment sets one level of some factors and leaves the rest as they are; `baseline` leaves all.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from workflow_scripts.lib.config_schema import suggest

BASELINE = "baseline"
SHAPE_KEYS = ("n_layer", "n_head", "n_embd", "n_inner", "dropout")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Treatment:
    """A change to training: the level of each factor, and what they set, by dotted key as in `optimizer.name`."""

    name: str
    levels: dict[str, str]
    changes: dict[str, Any]

    def training(self, baseline: Mapping[str, Any]) -> dict[str, Any]:
        """The values of `training` under this treatment."""
        changed = {**baseline, "optimizer": {**baseline["optimizer"]}}
        for key, value in self.changes.items():
            place, _, name = key.rpartition(".")
            if place == "optimizer":
                changed["optimizer"][name] = value
            elif not place:
                changed[name] = value
        return changed

    @property
    def model(self) -> dict[str, Any]:
        """What it sets of the trained shape."""
        return {key.partition(".")[2]: value for key, value in self.changes.items() if key.startswith("model.")}


def plan_treatments(training: Mapping[str, Any]) -> dict[str, Treatment]:
    """Lists the treatments of a study by name, the baseline first.

    `design` is `one_at_a_time` (each level alone), `factorial` (every combination of the factors), `pairs` (each level
    alone, and every two that set different keys) or a list of names, whose levels are joined by `+`.

    Raises:
        ValueError: one line that names the level, what is wrong with it and what to do.
    """
    factors = {factor["name"]: _levels(factor) for factor in training.get("factors", [])}
    _check_names(factors)
    factor_of = {level: factor for factor, levels in factors.items() for level in levels}
    changes = {level: values for levels in factors.values() for level, values in levels.items()}
    planned: dict[str, Treatment] = {}
    for levels in [(), *_combinations(training.get("design", "one_at_a_time"), factors, changes)]:
        name = "+".join(levels) or BASELINE
        together = _together(name, levels, changes)
        planned[name] = Treatment(
            name=name,
            levels=dict.fromkeys(factors, BASELINE) | {factor_of[level]: level for level in levels},
            changes=together,
        )
    _refuse_equal(planned, training)
    return planned


def _levels(factor: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The levels of a factor with what each sets; `key` and `values` are levels of one key, in finer steps."""
    if "key" in factor:
        key = factor["key"]
        return {f"{key.rpartition('.')[2]}_{value:g}": {key: value} for value in factor["values"]}
    return {level["name"]: _flat({k: v for k, v in level.items() if k != "name"}) for level in factor["levels"]}


def _flat(values: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{place}{key}.") if isinstance(value, Mapping) else {f"{place}{key}": value}
    return flat


def _combinations(
    design: str | list[str], factors: dict[str, dict[str, dict[str, Any]]], changes: dict[str, dict[str, Any]]
) -> Iterable[tuple[str, ...]]:
    if isinstance(design, list):
        return [_named(name, changes) for name in design if name != BASELINE]
    alone = [(level,) for level in changes]
    if design == "one_at_a_time":
        return alone
    if design == "pairs":
        pairs = itertools.combinations(changes, 2)
        return alone + [(a, b) for a, b in pairs if not changes[a].keys() & changes[b].keys()]
    crossed = itertools.product(*([None, *levels] for levels in factors.values()))
    return [levels for combined in crossed if (levels := tuple(level for level in combined if level is not None))]


def _named(name: str, changes: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    levels = tuple(name.split("+"))
    for level in levels:
        if level not in changes:
            raise ValueError(f"training.design: {level} in {name} is no level: {suggest(level, list(changes))}")
    return levels


def _together(name: str, levels: tuple[str, ...], changes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    together: dict[str, Any] = {}
    for level in levels:
        for key in changes[level].keys() & together.keys():
            raise ValueError(
                f"training.design: both levels of {name} set {key}: "
                "put them into one factor, or list the treatments that you want"
            )
        together |= changes[level]
    return together


def _check_names(factors: dict[str, dict[str, Any]]) -> None:
    seen: set[str] = {BASELINE}
    for factor, levels in factors.items():
        for level in levels:
            if level in seen:
                raise ValueError(
                    f"training.factors: the level {level} of {factor} is there twice: name each level once"
                )
            seen.add(level)


def _refuse_equal(planned: dict[str, Treatment], training: Mapping[str, Any]) -> None:
    known: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    for treatment in planned.values():
        values, model = treatment.training(training), treatment.model
        for name, other, other_model in known:
            if values == other and model == other_model:
                raise ValueError(f"training.factors: {treatment.name} changes nothing against {name}: remove one")
        known.append((treatment.name, values, model))
