"""Predicts step times: the calibrated sum over operators, corrected by what few measured cells say of it.

The correction is a regression on the logarithm of measured over summed time, one for each device, precision and
execution: a Gaussian process with fixed priors (Rasmussen and Williams 2006, sections 2.2 and 2.7) on a constant, on
the shares of the sum that launches, traffic, attention and vocabulary have, on size, and on nearness to measured cells.
Its scale follows the data, with a prior as strong as `PRIOR_CELLS` cells, so that intervals are Student's t (section
9.9). A cell that strays from what all others say of it, as one does that was disturbed, counts less. With no cell at
all it is the sum itself, with the interval of the priors. Where host and device work side by side each has a correction
of its own, and the slower one counts. Nothing here imports torch.
"""

import dataclasses
import functools
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from workflow_scripts.lib.operator_rates import Rates
from workflow_scripts.lib.specs import DeviceType, ModelShape, OptimizerSpec, StepSpec, from_json, to_json
from workflow_scripts.lib.step_costs import BOUNDS, Bound, StepCosts, step_costs

# What the logarithm of actual over summed time may owe to each feature, as the standard deviation of its weight.
PRIORS = {
    "constant": 0.2,
    "launch": 0.3,
    "bandwidth": 0.1,
    "attention": 0.1,
    "vocabulary": 0.1,
    "octaves_of_width": 0.03,
    "octaves_of_time": 0.02,
}
NEARNESS, OCTAVES_NEAR = 0.06, 2.0  # what cells share beyond the features, and how far apart they still do
NOISE = 0.1  # of a cell's median against a repeat, on machines that others use, too
# A cell that is so many deviations from what the others say of it is trusted less, if there are enough of them.
STRAY, ENOUGH = 2.5, 4
PRIOR_CELLS = 4
FITS = 2  # which side of a measured step was the slower one is told better by what a first fit says
CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepPrediction:
    """A step's time with its 95 % interval, what bounds it, and its parts in s, which add up to it or overlap."""

    step_time_s: float
    low_s: float
    high_s: float
    bound: Bound
    parts_s: dict[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A measured full step."""

    shape: ModelShape
    step: StepSpec
    optimizer: OptimizerSpec
    step_time_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeModel:
    """The predictor of one device, precision and execution, with the cells that it was fitted on."""

    device_type: DeviceType
    rates: Rates
    cases: tuple[Case, ...] = ()

    def predict(self, shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec) -> StepPrediction:
        """Predicts one optimizer step."""
        sides = self._sides(shape, step, optimizer, self._process)
        slower = sides[0]
        half = float(special.stdtrit(self._process.freedom, (1 + CONFIDENCE) / 2)) * slower.deviation
        return StepPrediction(
            step_time_s=slower.expected_s,
            low_s=slower.expected_s * math.exp(-half),
            high_s=slower.expected_s * math.exp(half),
            bound=slower.costs.bound,
            parts_s={name: sum(side.part_s(name) for side in sides) for name in BOUNDS},
        )

    def sum_s(self, shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec) -> float:
        """Gives the calibrated sum alone, without the correction."""
        return self._costs(shape, step, optimizer).total_s

    def left_out(self) -> list[StepPrediction]:
        """Predicts each cell that the model was fitted on by all others."""
        return [self.without(index).predict(c.shape, c.step, c.optimizer) for index, c in enumerate(self.cases)]

    def without(self, index: int) -> "TimeModel":
        """The model without one of its cells."""
        return dataclasses.replace(self, cases=self.cases[:index] + self.cases[index + 1 :])

    def by_other_models(self) -> list[StepPrediction] | None:
        """Predicts each cell by those of other models, whatever their batch or context; None where there are none."""
        models = [dataclasses.replace(case.shape, sequence_length=1) for case in self.cases]
        if len(set(models)) < 2:
            return None
        told = []
        for model, case in zip(models, self.cases, strict=True):
            others = tuple(one for one, its in zip(self.cases, models, strict=True) if its != model)
            told.append(dataclasses.replace(self, cases=others).predict(case.shape, case.step, case.optimizer))
        return told

    def error_from(self, k: int, draws: int = 40, seed: int = 0) -> float | None:
        """Gives the mean absolute error, relative, on the other cells when only k of them, drawn at random, are known.

        None with no more than k cells.
        """
        n = len(self.cases)
        if n <= k:
            return None
        drawing, errors = random.Random(seed), []
        for _ in range(draws):
            chosen = drawing.sample(range(n), k)
            few = dataclasses.replace(self, cases=tuple(self.cases[index] for index in chosen))
            for index in set(range(n)) - set(chosen):
                case = self.cases[index]
                expected_s = few.predict(case.shape, case.step, case.optimizer).step_time_s
                errors.append(abs(expected_s / case.step_time_s - 1))
        return sum(errors) / len(errors)

    def _costs(self, shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec) -> StepCosts:
        asked = (shape, step, optimizer.name, self.device_type)
        if asked not in self.rates.sums:
            self.rates.sums[asked] = step_costs(shape, step, optimizer, self.device_type, self.rates)
        return self.rates.sums[asked]

    @functools.cached_property
    def _process(self) -> "_Process":
        process, places = _Process((), (), ()), [_place(case.shape, case.step) for case in self.cases]
        for _ in range(FITS):
            slower = [self._sides(case.shape, case.step, case.optimizer, process)[0] for case in self.cases]
            sums_s = [side.costs.total_s for side in slower]
            logs = [math.log(case.step_time_s / sum_s) for case, sum_s in zip(self.cases, sums_s, strict=True)]
            process = _Process([side.features for side in slower], places, logs)
        return process

    def _sides(self, shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec, process: "_Process") -> list["_Side"]:
        """A step's sides as a regression corrects them, the slower one first: it is what is measured."""
        place, sides = _place(shape, step), []
        for costs in self._costs(shape, step, optimizer).sides:
            features = _features(shape, costs)
            shift, deviation = process.at(features, place)
            sides.append(_Side(costs=costs, features=features, shift=shift, deviation=deviation))
        return sorted(sides, key=lambda side: -side.expected_s)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Side:
    """A step, or what the host or the device does of it where they work side by side, with its correction."""

    costs: StepCosts
    features: np.ndarray
    shift: float
    deviation: float

    @property
    def expected_s(self) -> float:
        return self.costs.total_s * math.exp(self.shift)

    def part_s(self, name: Bound) -> float:
        return self.costs.parts_s[name] * math.exp(self.shift)


def _features(shape: ModelShape, costs: StepCosts) -> np.ndarray:
    """In the order of `PRIORS`; sizes are counted from the middle of what is usual, so that 0 says nothing."""
    parts = costs.parts_s
    total_s = sum(parts.values())
    return np.array(
        [
            1.0,
            parts["launch"] / total_s,
            parts["bandwidth"] / total_s,
            costs.attention_s / total_s,
            costs.vocabulary_s / total_s,
            math.log2(shape.n_embd / 256),
            math.log2(costs.total_s / 0.05),
        ]
    )


def _place(shape: ModelShape, step: StepSpec) -> np.ndarray:
    """Where a cell lies, in octaves: what lies near one another errs alike."""
    tokens = step.batch_size * shape.sequence_length / step.accumulation
    sizes = (tokens, shape.n_embd, shape.n_layer, shape.sequence_length, shape.vocab_size, shape.n_embd // shape.n_head)
    return np.log2(np.array([*sizes, 2.0 ** (2 * (shape.architecture == "llama"))], dtype=float))


class _Process:
    """The regression: prior and data give a mean and a deviation anywhere."""

    def __init__(self, features: Sequence[np.ndarray], places: Sequence[np.ndarray], logs: Sequence[float]) -> None:
        self.variances = np.array(list(PRIORS.values())) ** 2
        self.features, self.places = features, places
        self.logs = np.array(logs)
        self.freedom = PRIOR_CELLS + len(logs)
        self.scale = 1.0
        if len(logs):
            self._fit(self._between(np.stack(features), np.stack(places)))

    def _fit(self, shared: np.ndarray, rounds: int = 3) -> None:
        noise = np.full(len(self.logs), NOISE**2)
        for _ in range(rounds):
            self.inverse = np.linalg.inv(shared + np.diag(noise))
            self.scale = (PRIOR_CELLS + self.logs @ self.inverse @ self.logs) / self.freedom
            # The error of each cell's prediction by all others, in squared deviations (Rasmussen and Williams, 5.4.2).
            errors = (self.inverse @ self.logs) ** 2 / np.diag(self.inverse) / self.scale
            stray = errors > STRAY**2
            if len(self.logs) < ENOUGH or not stray.any():
                break
            noise[stray] *= 4 * errors[stray] / STRAY**2

    def _between(self, features: np.ndarray, places: np.ndarray) -> np.ndarray:
        mine, here = (np.stack(self.features), np.stack(self.places)) if len(self.features) else (features, places)
        apart = ((places[:, None] - here[None]) ** 2).sum(axis=2) / OCTAVES_NEAR**2
        return (features * self.variances) @ mine.T + NEARNESS**2 * np.exp(-apart / 2)

    def at(self, features: np.ndarray, place: np.ndarray) -> tuple[float, float]:
        """Gives mean and deviation of the logarithm of a measured time over the sum."""
        variance = float(features @ (self.variances * features)) + NEARNESS**2 + NOISE**2
        if not len(self.logs):
            return 0.0, math.sqrt(variance)
        shared = self._between(features[None], place[None])[0]
        mean = float(shared @ self.inverse @ self.logs)
        return mean, math.sqrt(self.scale * max(variance - shared @ self.inverse @ shared, NOISE**2))


def as_json(models: dict[str, TimeModel]) -> dict[str, Any]:
    """Turns the models of one device, by precision and execution, into JSON values: rates once for each precision."""
    return {
        "type": next(iter(models.values())).device_type,
        "rates": {group.split("-")[0]: to_json(model.rates) for group, model in models.items()},
        "cases": {group: [to_json(case) for case in model.cases] for group, model in models.items()},
    }


def read_models(cost_model: Path) -> dict[str, dict[str, TimeModel]]:
    """Reads cost_model.json: the models by device and by precision and execution (`fp32-eager`)."""
    found: dict[str, dict[str, TimeModel]] = {}
    for device, values in json.loads(cost_model.read_text(encoding="utf-8"))["devices"].items():
        rates = {precision: from_json(Rates, one) for precision, one in values["rates"].items()}
        for group, cases in values["cases"].items():
            found.setdefault(device, {})[group] = TimeModel(
                device_type=values["type"],
                rates=rates[group.split("-")[0]],
                cases=tuple(from_json(Case, case) for case in cases),
            )
    return found
