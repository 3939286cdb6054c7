"""Chooses two models of equal head count, one wide and one deep, that agree in one quantity and keep to the budgets."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from workflow_scripts.lib.counts import count_parameters, flops_per_token
from workflow_scripts.lib.specs import ModelShape
from workflow_scripts.lib.study import ROLES, complete_shape

RUNNERS_UP = 5
WORDS = {
    "non_embedding": "parameters without embeddings",
    "total": "parameters",
    "flops_per_token": "FLOPs per token",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """Predicted cost of training one model on one device; the time is None where the grid cannot predict it."""

    step_time_s: float | None
    train_s: float | None
    peak_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    wide: ModelShape
    deep: ModelShape
    mismatch: float
    distance: float


Predict = Callable[[ModelShape], dict[str, Cost]]


def candidates(wanted: dict[str, Any], vocab_size: int, sequence_length: int) -> list[ModelShape]:
    """Every shape of the asked head count, widths and depths whose quantity lies near the asked size."""
    shapes = []
    widths, depths = wanted["n_embd"], wanted["n_layer"]
    multiple = math.lcm(widths["multiple_of"], wanted["n_head"])
    for n_embd in range(multiple * math.ceil(widths["min"] / multiple), widths["max"] + 1, multiple):
        if wanted["architecture"] == "llama" and n_embd // wanted["n_head"] % 2:
            continue
        for n_layer in range(depths["min"], depths["max"] + 1):
            shape = complete_shape({**wanted, "n_layer": n_layer, "n_embd": n_embd}, vocab_size, sequence_length)
            if abs(quantity(wanted["quantity"], shape) / wanted["size"] - 1) <= wanted["size_tolerance"]:
                shapes.append(shape)
    return shapes


def quantity(name: str, shape: ModelShape) -> float:
    """The quantity that models are matched on."""
    if name == "flops_per_token":
        return flops_per_token(shape, shape.sequence_length).training
    return getattr(count_parameters(shape), name)


def matched_pairs(wanted: dict[str, Any], shapes: Sequence[ModelShape]) -> list[Pair]:
    """Pairs that agree in the quantity and differ enough in depth, closest to the asked size and each other first."""
    sizes = [quantity(wanted["quantity"], shape) for shape in shapes]
    pairs = []
    for wide, wide_size in zip(shapes, sizes, strict=True):
        for deep, deep_size in zip(shapes, sizes, strict=True):
            mismatch = deep_size / wide_size - 1
            if deep.n_layer >= wanted["depth_ratio"] * wide.n_layer and abs(mismatch) <= wanted["tolerance"]:
                distance = abs(math.log(wide_size / wanted["size"])) + abs(math.log(deep_size / wanted["size"]))
                pairs.append(Pair(wide=wide, deep=deep, mismatch=mismatch, distance=distance + abs(mismatch)))
    return sorted(pairs, key=lambda pair: (pair.distance, pair.wide.n_layer, pair.deep.n_layer))


def overruns(cost: dict[str, Cost], budgets: dict[str, float]) -> list[tuple[float, str]]:
    """How far a model goes over each budget: (ratio to the budget, what is over, in words)."""
    found = []
    memory_bytes, train_s = budgets["memory_gib"] * 2**30, budgets["train_minutes"] * 60
    for device, value in cost.items():
        if value.peak_bytes > memory_bytes:
            needed = f"{value.peak_bytes / 2**30:.2f} GiB on {device}, and selection.budgets.memory_gib is "
            found.append((value.peak_bytes / memory_bytes, f"{needed}{budgets['memory_gib']:g}"))
        if value.train_s is not None and value.train_s > train_s:
            needed = f"{value.train_s / 60:.1f} minutes on {device}, and selection.budgets.train_minutes is "
            found.append((value.train_s / train_s, f"{needed}{budgets['train_minutes']:g}"))
    return found


def choose(wanted: dict[str, Any], vocab_size: int, sequence_length: int, predict: Predict) -> dict[str, Any]:
    """Chooses the pair.

    Args:
        wanted: `selection` of the config.
        vocab_size: of the corpus's tokens.
        sequence_length: context length of training.
        predict: cost of a shape on every device, by device id.

    Returns:
        The content of selection.json.

    Raises:
        ValueError: no pair agrees, or none that agrees keeps to the budgets: which budget, and by how much.
    """
    shapes = candidates(wanted, vocab_size, sequence_length)
    pairs = matched_pairs(wanted, shapes)
    if not pairs:
        raise ValueError(
            f"selection: none of {len(shapes)} shapes within {wanted['size_tolerance']:.0%} of size {wanted['size']:g} "
            f"pair up within tolerance {wanted['tolerance']:g} at depth_ratio {wanted['depth_ratio']:g}: widen "
            "n_embd, n_layer, tolerance or size_tolerance"
        )
    costs = {shape: predict(shape) for shape in {shape for pair in pairs for shape in (pair.wide, pair.deep)}}
    over = {shape: overruns(cost, wanted["budgets"]) for shape, cost in costs.items()}
    kept = [pair for pair in pairs if not over[pair.wide] and not over[pair.deep]]
    if not kept:
        ratio, text = min(max(over[pair.wide] + over[pair.deep]) for pair in pairs)
        raise ValueError(
            f"selection: none of {len(pairs)} matched pairs keeps to the budgets; the nearest needs {text}, "
            f"{ratio - 1:.0%} over: raise that budget or lower selection.size"
        )
    best = kept[0]
    roles = {name: _describe(getattr(best, name), costs[getattr(best, name)]) for name in ROLES}
    return {
        "quantity": wanted["quantity"],
        "tolerance": wanted["tolerance"],
        "size": wanted["size"],
        "n_candidates": len(shapes),
        "n_matched_pairs": len(pairs),
        "n_within_budgets": len(kept),
        "budgets": wanted["budgets"],
        "roles": roles,
        "ratios": _ratios(roles),
        "reasons": _reasons(wanted, best, len(shapes), pairs, kept),
        "runners_up": [
            {"wide": f"{p.wide.n_layer} × {p.wide.n_embd}", "deep": f"{p.deep.n_layer} × {p.deep.n_embd}",
             "mismatch": p.mismatch, "wide_size": quantity(wanted["quantity"], p.wide)}
            for p in kept[1 : 1 + RUNNERS_UP]
        ],
    }  # fmt: skip


def _describe(shape: ModelShape, cost: dict[str, Cost]) -> dict[str, Any]:
    return {
        "shape": dataclasses.asdict(shape),
        "params": dataclasses.asdict(count_parameters(shape)),
        "flops_per_token": flops_per_token(shape, shape.sequence_length).training,
        "activation_elements_per_token": shape.n_layer * (8 * shape.n_embd + 2 * shape.n_inner),
        "predicted": {device: dataclasses.asdict(value) for device, value in cost.items()},
    }


def _ratios(roles: dict[str, Any]) -> dict[str, float]:
    """Every quantity of the deep model over that of the wide one, whichever they are matched on."""
    wide, deep = roles["wide"], roles["deep"]
    ratios = {name: deep["params"][name] / wide["params"][name] for name in ("total", "non_embedding")}
    for name in ("flops_per_token", "activation_elements_per_token"):
        ratios[name] = deep[name] / wide[name]
    for name in ("n_layer", "n_embd"):
        ratios[name] = deep["shape"][name] / wide["shape"][name]
    return ratios


def _reasons(
    wanted: dict[str, Any], best: Pair, n_shapes: int, pairs: Sequence[Pair], kept: Sequence[Pair]
) -> list[str]:
    return [
        f"{n_shapes} shapes of {wanted['n_head']} heads lie within {wanted['size_tolerance']:.0%} of "
        f"{wanted['size']:,.0f} {WORDS[wanted['quantity']]}.",
        f"{len(pairs)} pairs of them agree within {wanted['tolerance']:.1%} while one has at least "
        f"{wanted['depth_ratio']:g} times the layers of the other.",
        f"{len(kept)} of these pairs keep to every budget on every device.",
        f"The pair chosen differs by {abs(best.mismatch):.2%} and lies closest to the asked size.",
    ]
