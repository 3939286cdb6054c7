"""Chooses models of equal head count for the roles of a study, by prediction and inside its budgets on every device.

`wide` and `deep` agree in one quantity and differ in depth as asked; `balanced` agrees with both and lies between them
in depth; `largest` has the most parameters without embeddings of all that keep to the budgets and to usual proportions.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from workflow_scripts.lib.candidates import Candidate, Predict, field, near_size
from workflow_scripts.lib.counts import count_parameters, flops_per_token
from workflow_scripts.lib.specs import ModelShape
from workflow_scripts.lib.study import MATCHED_ROLES

RUNNERS_UP = 5
WORDS = {
    "non_embedding": "parameters without embeddings",
    "total": "parameters",
    "flops_per_token": "FLOPs per token",
    "step_time": "seconds of predicted step time",
}
USUAL_PROPORTIONS = (32, 128)
"""Width over depth of models in use: 33 (GPT-2 XL: 1,600 over 48) to 128 (Llama 7B: 4,096 over 32)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Match:
    """A wide and a deep candidate that agree, with the balanced one between them where it was asked for."""

    wide: Candidate
    deep: Candidate
    balanced: Candidate | None = None

    @property
    def mismatch(self) -> float:
        return self.deep.size / self.wide.size - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """The chosen candidate of each role, the content of selection.json, and the whole field."""

    roles: dict[str, Candidate]
    selection: dict[str, Any]
    field: list[Candidate]


def choose(wanted: dict[str, Any], vocab_size: int, sequence_length: int, predict: Predict) -> Choice:
    """Chooses a model for each role that is asked for.

    Args:
        wanted: `selection` of the config.
        vocab_size: of the corpus's tokens.
        sequence_length: context length of training.
        predict: cost of a shape on every device, by device id.

    Raises:
        ValueError: a role stays empty: no shapes agree, or none that agrees keeps to the budgets: which, by how much.
    """
    candidates, timed = field(wanted, vocab_size, sequence_length, predict)
    roles: dict[str, Candidate] = {}
    told: dict[str, Any] = {"runners_up": []}
    reasons: list[str] = []
    if "wide" in wanted["roles"]:
        near = [candidate for candidate in candidates if near_size(candidate, wanted)]
        pairs = Pairs(near, wanted)
        matches = list(itertools.islice(pairs.kept(), 1 + RUNNERS_UP))
        if not matches:
            raise ValueError(pairs.why_none())
        roles = {role: getattr(matches[0], role) for role in MATCHED_ROLES if role in wanted["roles"]}
        told = {"n_matched_pairs": pairs.n_matched, "n_within_budgets": pairs.n_within_budgets,
                "runners_up": [_runner_up(match) for match in matches[1:]]}  # fmt: skip
        reasons = _reasons(wanted, matches[0], len(near), pairs, timed)
    if "largest" in wanted["roles"]:
        roles["largest"] = _largest(candidates, wanted)
        reasons.append(_why_largest(candidates, roles["largest"]))
    described = {role: describe(candidate) for role, candidate in roles.items()}
    selection = {
        "quantity": wanted["quantity"],
        "quantity_device": timed,
        "tolerance": wanted["tolerance"],
        "size": wanted["size"],
        "n_field": len(candidates),
        "n_candidates": sum(near_size(candidate, wanted) for candidate in candidates),
        "budgets": wanted["budgets"],
        "roles": described,
        "ratios": _ratios(described, wanted["quantity"]) if "wide" in roles else {},
        "reasons": reasons,
        **told,
    }
    return Choice(roles=roles, selection=selection, field=candidates)


class Pairs:
    """The pairs among candidates of about the asked size, closest to that size and to each other first."""

    def __init__(self, near: Sequence[Candidate], wanted: dict[str, Any]) -> None:
        self._near, self._wanted = near, wanted
        sizes = np.array([candidate.size for candidate in near], dtype=np.float64)
        layers = np.array([candidate.shape.n_layer for candidate in near])
        mismatch = sizes[None, :] / sizes[:, None] - 1  # (wide, deep)
        matched = (layers[None, :] >= wanted["depth_ratio"] * layers[:, None]) & (
            np.abs(mismatch) <= wanted["tolerance"]
        )
        wide, deep = np.nonzero(matched)
        off = np.abs(np.log(sizes / wanted["size"]))
        distance = off[wide] + off[deep] + np.abs(mismatch[wide, deep])
        order = np.lexsort((layers[deep], layers[wide], distance))
        self._wide, self._deep = wide[order], deep[order]
        over = np.array([candidate.worst.ratio if candidate.worst else 0.0 for candidate in near])
        self._over = np.maximum(over[self._wide], over[self._deep])
        self.n_matched = len(self._over)
        self.n_within_budgets = int(np.sum(self._over == 0))

    def kept(self) -> Iterator[Match]:
        """The pairs that keep to every budget, best first; where `balanced` is asked for, those with one between."""
        for index in np.flatnonzero(self._over == 0):
            pair = Match(wide=self._near[self._wide[index]], deep=self._near[self._deep[index]])
            if "balanced" not in self._wanted["roles"]:
                yield pair
            elif balanced := self._between(pair):
                yield dataclasses.replace(pair, balanced=balanced)

    def _between(self, pair: Match) -> Candidate | None:
        """The candidate that agrees with both, keeps to the budgets, and lies nearest to their mean depth in ratio."""
        middle = math.sqrt(pair.wide.shape.n_layer * pair.deep.shape.n_layer)
        fitting = [
            candidate
            for candidate in self._near
            if pair.wide.shape.n_layer < candidate.shape.n_layer < pair.deep.shape.n_layer
            and not candidate.overruns
            and all(abs(candidate.size / end.size - 1) <= self._wanted["tolerance"] for end in (pair.wide, pair.deep))
        ]
        return min(fitting, key=lambda candidate: abs(math.log(candidate.shape.n_layer / middle)), default=None)

    def why_none(self) -> str:
        """Says in one line why no pair is left."""
        wanted = self._wanted
        if not self.n_matched:
            return (
                f"selection: none of {len(self._near)} shapes within {wanted['size_tolerance']:.0%} of size "
                f"{wanted['size']:g} pair up within tolerance {wanted['tolerance']:g} at depth_ratio "
                f"{wanted['depth_ratio']:g}: widen n_embd, n_layer, tolerance or size_tolerance"
            )
        if self.n_within_budgets:
            return (
                f"selection.roles has balanced, and between none of the {self.n_within_budgets} pairs inside the "
                f"budgets lies a shape that agrees with both within tolerance {wanted['tolerance']:g}: widen n_embd, "
                "n_layer or tolerance"
            )
        nearest = int(np.argmin(self._over))
        pair = (self._near[self._wide[nearest]], self._near[self._deep[nearest]])
        worst = max((end.worst for end in pair if end.worst), key=lambda overrun: overrun.ratio)
        return (
            f"selection: none of {self.n_matched} matched pairs keeps to the budgets; the nearest needs {worst.text}, "
            f"{worst.ratio - 1:.0%} over: raise that budget or lower selection.size"
        )


def has_usual_proportions(shape: ModelShape) -> bool:
    """Whether width over depth is as in models in use."""
    return USUAL_PROPORTIONS[0] <= shape.n_embd / shape.n_layer <= USUAL_PROPORTIONS[1]


def _largest(candidates: Sequence[Candidate], wanted: dict[str, Any]) -> Candidate:
    usual = [candidate for candidate in candidates if has_usual_proportions(candidate.shape)]
    if not usual:
        raise ValueError(
            f"selection.roles has largest, and no shape of selection.n_embd {wanted['n_embd']} and selection.n_layer "
            f"{wanted['n_layer']} is {USUAL_PROPORTIONS[0]} to {USUAL_PROPORTIONS[1]} times as wide as it has layers: "
            "widen n_embd or n_layer"
        )
    kept = [candidate for candidate in usual if not candidate.overruns]
    if not kept:
        worst = min((candidate.worst for candidate in usual), key=lambda overrun: overrun.ratio)
        raise ValueError(
            f"selection: no shape of usual proportions keeps to the budgets; the nearest needs {worst.text}, "
            f"{worst.ratio - 1:.0%} over: raise that budget or lower selection.n_embd.min and selection.n_layer.min"
        )
    return max(kept, key=lambda candidate: (count_parameters(candidate.shape).non_embedding, -candidate.shape.n_layer))


def _why_largest(candidates: Sequence[Candidate], largest: Candidate) -> str:
    low, high = USUAL_PROPORTIONS
    usual = [candidate for candidate in candidates if has_usual_proportions(candidate.shape)]
    inside = sum(not candidate.overruns for candidate in usual)
    return (
        f"The largest has {count_parameters(largest.shape).non_embedding:,} parameters without embeddings: the most of "
        f"{inside:,} shapes that keep to every budget on every device, among {len(usual):,} that are {low} to {high} "
        "times as wide as they have layers, as models in use are."
    )


def describe(candidate: Candidate) -> dict[str, Any]:
    """A role's entry in selection.json."""
    shape = candidate.shape
    return {
        "shape": dataclasses.asdict(shape),
        "params": dataclasses.asdict(count_parameters(shape)),
        "size": candidate.size,
        "flops_per_token": flops_per_token(shape, shape.sequence_length).training,
        "activation_elements_per_token": shape.n_layer * (8 * shape.n_embd + 2 * shape.n_inner),
        "predicted": {device: dataclasses.asdict(value) for device, value in candidate.cost.items()},
    }


def _ratios(described: dict[str, Any], matched: str) -> dict[str, float]:
    """Every quantity of the deep model over that of the wide one, whichever they are matched on."""
    wide, deep = described["wide"], described["deep"]
    ratios = {name: deep["params"][name] / wide["params"][name] for name in ("total", "non_embedding")}
    for name in ("flops_per_token", "activation_elements_per_token"):
        ratios[name] = deep[name] / wide[name]
    for name in ("n_layer", "n_embd"):
        ratios[name] = deep["shape"][name] / wide["shape"][name]
    if matched not in ratios:
        ratios[matched] = deep["size"] / wide["size"]
    return ratios


def _runner_up(match: Match) -> dict[str, Any]:
    shapes = {role: getattr(match, role) for role in MATCHED_ROLES}
    told = {role: f"{c.shape.n_layer} × {c.shape.n_embd}" for role, c in shapes.items() if c}
    return {**told, "mismatch": match.mismatch, "wide_size": match.wide.size}


def _reasons(wanted: dict[str, Any], best: Match, n_near: int, pairs: Pairs, timed: str | None) -> list[str]:
    words = WORDS[wanted["quantity"]] + (f" on {timed}" if timed else "")
    size = f"{wanted['size']:g}" if timed else f"{wanted['size']:,.0f}"
    reasons = [
        f"{n_near:,} shapes of {wanted['n_head']} heads lie within {wanted['size_tolerance']:.0%} of {size} {words}.",
        f"{pairs.n_matched:,} pairs of them agree within {wanted['tolerance']:.1%} while one has at least "
        f"{wanted['depth_ratio']:g} times the layers of the other.",
        f"{pairs.n_within_budgets:,} of these pairs keep to every budget on every device.",
        f"The pair chosen differs by {abs(best.mismatch):.2%} and lies closest to the asked size"
        + (", among those with a balanced one between them." if best.balanced else "."),
    ]
    if best.balanced:
        reasons.append(
            f"The balanced one has {best.balanced.shape.n_layer} layers, the nearest to the mean of "
            f"{best.wide.shape.n_layer} and {best.deep.shape.n_layer} in ratio."
        )
    return reasons
