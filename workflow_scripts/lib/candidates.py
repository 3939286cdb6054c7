"""The field of candidates: every shape that a selection considers, its size, and what it would cost on each device."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from workflow_scripts.lib.counts import count_parameters, flops_per_token
from workflow_scripts.lib.specs import ModelShape
from workflow_scripts.lib.study import complete_shape

CANDIDATE_COLUMNS = (
    "device n_layer n_embd n_head n_params n_params_non_embedding flops_per_token size near_size step_time_s train_s "
    "peak_bytes over_memory over_time role"
).split()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """Predicted cost of training one model on one device; the time is None where the grid cannot predict it."""

    step_time_s: float | None
    train_s: float | None
    peak_bytes: int


Predict = Callable[[ModelShape], dict[str, Cost]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overrun:
    """How far a model goes over a budget: as a ratio to it, and in words."""

    budget: str
    device: str
    ratio: float
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A shape with its size in the named quantity, its cost by device, and the budgets that it overruns."""

    shape: ModelShape
    size: float
    cost: dict[str, Cost]
    overruns: tuple[Overrun, ...]

    @property
    def worst(self) -> Overrun | None:
        return max(self.overruns, key=lambda overrun: overrun.ratio, default=None)


def field(
    wanted: dict[str, Any], vocab_size: int, sequence_length: int, predict: Predict
) -> tuple[list[Candidate], str | None]:
    """Lists every shape of the asked head count, widths and depths, with its cost.

    Args:
        wanted: `selection` of the config.
        vocab_size: of the corpus's tokens.
        sequence_length: context length of training.
        predict: cost of a shape on every device, by device id.

    Returns:
        The candidates, and the device whose step time is the matched quantity (None for any other quantity).

    Raises:
        ValueError: the matched quantity is the step time, and no device has a cost model for it.
    """
    shapes = _shapes(wanted, vocab_size, sequence_length)
    costs = [predict(shape) for shape in shapes]
    timed = _timed_device(costs) if wanted["quantity"] == "step_time" else None
    candidates = [
        Candidate(
            shape=shape,
            size=cost[timed].step_time_s if timed else quantity(wanted["quantity"], shape),
            cost=cost,
            overruns=tuple(overruns(cost, wanted["budgets"])),
        )
        for shape, cost in zip(shapes, costs, strict=True)
    ]
    return candidates, timed


def _shapes(wanted: dict[str, Any], vocab_size: int, sequence_length: int) -> list[ModelShape]:
    widths, depths = wanted["n_embd"], wanted["n_layer"]
    multiple = math.lcm(widths["multiple_of"], wanted["n_head"])
    first = multiple * math.ceil(widths["min"] / multiple)
    return [
        complete_shape({**wanted, "n_layer": n_layer, "n_embd": n_embd}, vocab_size, sequence_length)
        for n_embd in range(first, widths["max"] + 1, multiple)
        if wanted["architecture"] != "llama" or n_embd // wanted["n_head"] % 2 == 0  # RoPE turns pairs
        for n_layer in range(depths["min"], depths["max"] + 1)
    ]


def _timed_device(costs: Sequence[dict[str, Cost]]) -> str:
    """The study's first device whose step times are predicted: a time belongs to one device."""
    for device, cost in (costs[0] if costs else {}).items():
        if cost.step_time_s is not None:
            return device
    raise ValueError(
        "selection.quantity is step_time, and no device has a cost model for training's precision and execution: "
        "add cells of them to grid.products, or match on non_embedding, total or flops_per_token"
    )


def quantity(name: str, shape: ModelShape) -> float:
    """The quantity that models are matched on, as far as a shape alone says it."""
    if name == "flops_per_token":
        return flops_per_token(shape, shape.sequence_length).training
    return getattr(count_parameters(shape), name)


def overruns(cost: dict[str, Cost], budgets: dict[str, float]) -> list[Overrun]:
    """Which budgets a model overruns, on which device, by how much."""
    found = []
    memory_bytes, train_s = budgets["memory_gib"] * 2**30, budgets["train_minutes"] * 60
    for device, value in cost.items():
        if value.peak_bytes > memory_bytes:
            text = f"{value.peak_bytes / 2**30:.2f} GiB on {device}, and selection.budgets.memory_gib is "
            text += f"{budgets['memory_gib']:g}"
            found.append(Overrun(budget="memory", device=device, ratio=value.peak_bytes / memory_bytes, text=text))
        if value.train_s is not None and value.train_s > train_s:
            text = f"{value.train_s / 60:.1f} minutes on {device}, and selection.budgets.train_minutes is "
            text += f"{budgets['train_minutes']:g}"
            found.append(Overrun(budget="time", device=device, ratio=value.train_s / train_s, text=text))
    return found


def near_size(candidate: Candidate, wanted: dict[str, Any]) -> bool:
    """Whether a candidate is about as large as asked."""
    return abs(candidate.size / wanted["size"] - 1) <= wanted["size_tolerance"]


def candidate_rows(
    candidates: Sequence[Candidate], wanted: dict[str, Any], chosen: dict[str, Candidate]
) -> list[dict[str, Any]]:
    """The field as a table, a row for each candidate and device; `role` is the one that it was chosen for."""
    roles: dict[ModelShape, list[str]] = {}
    for role, candidate in chosen.items():
        roles.setdefault(candidate.shape, []).append(role)
    rows = []
    for candidate in candidates:
        shape, params = candidate.shape, count_parameters(candidate.shape)
        common = {
            "n_layer": shape.n_layer,
            "n_embd": shape.n_embd,
            "n_head": shape.n_head,
            "n_params": params.total,
            "n_params_non_embedding": params.non_embedding,
            "flops_per_token": flops_per_token(shape, shape.sequence_length).training,
            "size": candidate.size,
            "near_size": near_size(candidate, wanted),
            "role": "+".join(roles.get(shape, [])) or None,
        }
        for device, cost in candidate.cost.items():
            over = {overrun.budget for overrun in candidate.overruns if overrun.device == device}
            costs = dataclasses.asdict(cost)
            rows.append(
                {"device": device, **common, **costs, "over_memory": "memory" in over, "over_time": "time" in over}
            )
    return rows
