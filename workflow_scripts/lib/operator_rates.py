"""What a device takes for one operator of any size, between and beyond the sizes that its calibration measured.

Time over work (FLOPs of products, elements of all others) is a smooth function of the logarithms of an operator's
sizes. Between the measured points it is interpolated by a radial basis of |r| with a linear trend (a polyharmonic
spline); outside of the measured range the nearest rate in it counts. Nothing here imports torch.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from workflow_scripts.lib.operator_work import LAUNCHES, Direction, Kind, elements, flops, step_operators
from workflow_scripts.lib.specs import ModelShape, StepSpec

SMOOTHING = 0.02  # of the logarithm of a measured time: about how well a short measurement repeats
UNMEASURED_RANGE = 0.5  # smallest time of an operator, as a share of the shortest that was measured


@dataclasses.dataclass(frozen=True, kw_only=True)
class OperatorTime:
    """One measured operator: `seconds` on the device for one call, and `host_s` to queue it where that is apart."""

    kind: str
    direction: str
    dims: tuple[int, ...]
    seconds: float
    host_s: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    """What a calibration measured of one precision.

    `flop_per_s` is the ceiling of products, `bytes_per_s` that of copies; `operator_s` what the host takes for a small
    operator, `launch_s` what each kernel of a step costs the host beyond that: on the CPU beyond the operator measured
    alone, on CUDA in all. `kernel_s` is what the device takes between two kernels of a captured graph (None but there).
    """

    flop_per_s: float
    bytes_per_s: float
    operator_s: float
    launch_s: float
    kernel_s: float | None
    operators: tuple[OperatorTime, ...]

    def knows(self, kind: Kind) -> bool:
        """Whether an operator was measured."""
        return (kind, "forward") in self._tables

    def seconds(self, kind: Kind, direction: Direction, dims: tuple[int, ...]) -> float:
        """Gives the device's time for one call, in seconds."""
        return self._tables[kind, direction].seconds(dims)

    @functools.cached_property
    def sums(self) -> dict[Any, Any]:
        """The sums over operators that were made with these rates, by what they were asked for."""
        return {}

    @functools.cached_property
    def _tables(self) -> dict[tuple[str, str], "_Table"]:
        groups: dict[tuple[str, str], list[OperatorTime]] = {}
        for one in self.operators:
            groups.setdefault((one.kind, one.direction), []).append(one)
        return {key: _Table(key[0], key[1], group) for key, group in groups.items()}


class _Table:
    """Times of one kind of operator in one direction, as a function of its size."""

    def __init__(self, kind: str, direction: str, points: Sequence[OperatorTime]) -> None:
        self.kind, self.direction = kind, direction
        sizes = np.array([self._size(point.dims) for point in points])
        costs = np.array([math.log(point.seconds / self._work(point.dims)) for point in points])
        self.low, self.high = sizes.min(axis=0), sizes.max(axis=0)
        self.varied = self.high > self.low
        self.points = sizes[:, self.varied]
        self.least_s = UNMEASURED_RANGE * min(point.seconds for point in points)
        self.weights = self._fit(costs)
        self._known: dict[tuple[int, ...], float] = {}

    def seconds(self, dims: tuple[int, ...]) -> float:
        if dims not in self._known:
            at = np.clip(self._size(dims), self.low, self.high)[self.varied]
            basis = np.concatenate([np.linalg.norm(self.points - at, axis=1), [1.0], at])
            self._known[dims] = max(math.exp(basis @ self.weights) * self._work(dims), self.least_s)
        return self._known[dims]

    def _fit(self, costs: np.ndarray) -> np.ndarray:
        n, trend = len(self.points), np.c_[np.ones(len(self.points)), self.points]
        if n <= trend.shape[1]:  # too few for a trend: their mean
            return np.concatenate([np.zeros(n), [costs.mean()], np.zeros(trend.shape[1] - 1)])
        # −|r| is conditionally positive definite, so that smoothing is subtracted from its diagonal.
        kernel = cdist(self.points, self.points) - SMOOTHING * np.eye(n)
        zeros = np.zeros((trend.shape[1], trend.shape[1]))
        system = np.block([[kernel, trend], [trend.T, zeros]])
        return np.linalg.lstsq(system, np.concatenate([costs, np.zeros(trend.shape[1])]), rcond=None)[0]

    def _size(self, dims: tuple[int, ...]) -> np.ndarray:
        """What the rate depends on: products all their sizes, everything else its elements and its innermost size."""
        if self.kind == "linear":
            return np.log2(np.array(dims, dtype=float))
        if self.kind == "attention":
            return np.log2([dims[0] * dims[1], dims[2], dims[3]])
        return np.log2([float(elements(self.kind, dims))])

    def _work(self, dims: tuple[int, ...]) -> float:
        return flops(self.kind, dims, self.direction) or float(elements(self.kind, dims))


def read_rates(calibration: dict[str, Any]) -> dict[str, Rates]:
    """Reads the rates of a device from its calibration.json, by precision; empty if no operators were measured."""
    ceilings: dict[tuple[str, str | None], float] = {
        (one["quantity"], one["precision"]): one["best"] if one["unit"] != "s" else one["value"]
        for one in calibration["ceilings"]
        if one["value"] is not None
    }
    found: dict[str, list[OperatorTime]] = {}
    for one in calibration.get("operators") or ():
        measured = {name: one[name] for name in ("kind", "direction", "seconds", "host_s")}
        found.setdefault(one["precision"], []).append(OperatorTime(dims=tuple(one["dims"]), **measured))
    if ("copy", None) not in ceilings or ("operator", None) not in ceilings:
        return {}
    rates = {}
    for precision, operators in found.items():
        if ("matrix_product", precision) in ceilings:
            alone = Rates(
                flop_per_s=ceilings["matrix_product", precision],
                bytes_per_s=ceilings["copy", None],
                operator_s=ceilings["operator", None],
                launch_s=0.0,
                kernel_s=ceilings.get(("kernel_in_graph", None)),
                operators=tuple(one for one in operators if one.kind != "decoder"),
            )
            decoders = [one for one in operators if one.kind == "decoder"]
            rates[precision] = dataclasses.replace(alone, launch_s=_launch_s(alone, decoders))
    return rates


def _launch_s(alone: Rates, decoders: Sequence[OperatorTime]) -> float:
    """What a kernel costs the host within a step, from decoders that differ by some blocks; see `Rates.launch_s`."""
    if len(decoders) < 2:
        return alone.operator_s
    times, launches = [], []
    for one in decoders:
        n_layer, n_embd, n_head, length, vocabulary = one.dims
        shape = ModelShape(
            architecture="gpt2", n_layer=n_layer, n_head=n_head, n_embd=n_embd, n_inner=4 * n_embd,
            vocab_size=vocabulary, sequence_length=length, bias=False,
        )  # fmt: skip
        calls = [
            (operator, direction, n)
            for operator in step_operators(shape, StepSpec(batch_size=1, precision="fp32", execution="eager"))
            for direction, n in (("forward", operator.calls), ("backward", operator.backward_calls))
            if n and operator.kind != "optimizer" and alone.knows(operator.kind)
        ]
        known_s = sum(n * alone.seconds(operator.kind, direction, operator.dims) for operator, direction, n in calls)
        times.append(one.seconds - known_s if one.host_s is None else one.host_s)
        launches.append(sum(n * LAUNCHES[operator.kind][direction == "backward"] for operator, direction, n in calls))
    return max((times[-1] - times[0]) / (launches[-1] - launches[0]), 0.0)
