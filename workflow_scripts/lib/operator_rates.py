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

from workflow_scripts.lib.operator_work import Direction, Kind, elements, flops

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
    operator, `kernel_s` what the device takes between two kernels of a captured graph (None but on CUDA).
    """

    flop_per_s: float
    bytes_per_s: float
    operator_s: float
    kernel_s: float | None
    operators: tuple[OperatorTime, ...]

    def knows(self, kind: Kind) -> bool:
        """Whether an operator was measured."""
        return (kind, "forward") in self._tables

    def seconds(self, kind: Kind, direction: Direction, dims: tuple[int, ...]) -> float:
        """Gives the device's time for one call, in seconds."""
        return self._tables[kind, direction].seconds(dims)

    def host_s(self, kind: Kind, direction: Direction) -> float | None:
        """Gives the host's time to queue one call, in seconds: it hardly depends on the size. None where not apart."""
        return self._tables[kind, direction].host_s

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
        hosts = sorted(point.host_s for point in points if point.host_s is not None)
        self.host_s = hosts[len(hosts) // 2] if hosts else None
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
    return {
        precision: Rates(
            flop_per_s=ceilings["matrix_product", precision],
            bytes_per_s=ceilings["copy", None],
            operator_s=ceilings["operator", None],
            kernel_s=ceilings.get(("kernel_in_graph", None)),
            operators=tuple(operators),
        )
        for precision, operators in found.items()
        if ("matrix_product", precision) in ceilings
    }
