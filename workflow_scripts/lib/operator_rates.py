"""What a device takes for one operator of any size, between and beyond the sizes that its calibration measured.

A roofline, floor + max(FLOPs / ceiling, bytes / bandwidth), comes near; what a measured time is of it is a smooth
function of the logarithms of an operator's sizes. Between the measured points that is interpolated by a radial basis of
|r| with a linear trend (a polyharmonic spline); outside of the measured range the nearest in it counts. What a step
takes beyond its operators is read off steps of tiny models. Nothing here imports torch.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np

from workflow_scripts.lib.operator_sizes import ALWAYS_FP32
from workflow_scripts.lib.operator_work import Direction, Kind, elements, flops, moved_bytes, step_operators
from workflow_scripts.lib.specs import Architecture, ModelShape, StepSpec, from_json

SMOOTHING = 0.02  # of the logarithm of a measured time: about how well a short measurement repeats


@dataclasses.dataclass(frozen=True, kw_only=True)
class OperatorTime:
    """One measured operator: `seconds` on the device for one call, and `host_s` to queue it where that is apart."""

    kind: str
    direction: str
    dims: tuple[int, ...]
    seconds: float
    host_s: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overhead:
    """What steps of an architecture, with or without biases, take beyond their operators; on CUDA the host's time.

    In s, once and again for each block: of a forward and backward pass, and of an update.
    """

    architecture: Architecture
    bias: bool
    pass_s: float
    pass_block_s: float
    update_s: float
    update_block_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    """What a calibration measured of one precision.

    `flop_per_s` is the ceiling of products, `bytes_per_s` that of copies; `operator_s` what the host takes for a small
    operator. `kernel_s` is what the device takes between two kernels of a captured graph (None but there).
    """

    flop_per_s: float
    bytes_per_s: float
    operator_s: float
    kernel_s: float | None
    operators: tuple[OperatorTime, ...]
    overheads: tuple[Overhead, ...]

    def overhead(self, shape: ModelShape) -> Overhead:
        """What a model's steps take beyond their operators."""
        bias = shape.bias and shape.architecture == "gpt2"
        return next(one for one in self.overheads if (one.architecture, one.bias) == (shape.architecture, bias))

    def knows(self, kind: Kind) -> bool:
        """Whether an operator was measured."""
        return any(kind == one for one, _ in self._tables)

    def seconds(self, kind: Kind, direction: Direction, dims: tuple[int, ...]) -> float:
        """Gives the device's time for one call, in seconds."""
        return self._tables[kind, direction].seconds(dims)

    def moving_s(self, moved_bytes: float, element_bytes: int) -> float:
        """What a kernel takes that does little but move so many bytes, in seconds.

        The faster of two that were measured: an addition of a product's result to a stream in float32, of which eager
        torch has a slow kernel where types differ, and GELU, which on a processor is arithmetic.

        Args:
            moved_bytes: read and written.
            element_bytes: of an element of a product's result in this precision.
        """
        an_element = {"residual": 8 + element_bytes, "gelu": 2 * element_bytes}
        sizes = {kind: (1, max(1, round(moved_bytes / each))) for kind, each in an_element.items() if self.knows(kind)}
        return min(self.seconds(kind, "forward", dims) for kind, dims in sizes.items())

    @functools.cached_property
    def shortest_s(self) -> float:
        """What the least work takes of any kernel but the optimizer's, whose time is told by the parameter."""
        kernels = [one for one in self.operators if one.direction == "forward" and one.kind != "optimizer"]
        return min((one.seconds for one in kernels), default=0.0)

    @functools.cached_property
    def sums(self) -> dict[Any, Any]:
        """The sums over operators that were made with these rates, by what they were asked for."""
        return {}

    @functools.cached_property
    def _tables(self) -> dict[tuple[str, str], "_Table"]:
        groups: dict[tuple[str, str], list[OperatorTime]] = {}
        for one in self.operators:
            groups.setdefault((one.kind, one.direction), []).append(one)
        return {key: _Table(key[0], key[1], group, self) for key, group in groups.items()}


class _Table:
    """Times of one kind of operator in one direction, as a function of its size."""

    def __init__(self, kind: str, direction: str, points: Sequence[OperatorTime], rates: Rates) -> None:
        self.kind, self.direction, self.rates = kind, direction, rates
        self.floor_s = min(point.seconds for point in points)
        sizes = np.array([self._size(point.dims) for point in points])
        costs = np.array([math.log(point.seconds / self._roofline_s(point.dims)) for point in points])
        self.low, self.high = sizes.min(axis=0), sizes.max(axis=0)
        self.varied = self.high > self.low
        self.points = sizes[:, self.varied]
        self.weights = self._fit(costs)
        self._known: dict[tuple[int, ...], float] = {}

    def seconds(self, dims: tuple[int, ...]) -> float:
        if dims not in self._known:
            at = np.clip(self._size(dims), self.low, self.high)[self.varied]
            basis = np.concatenate([np.linalg.norm(self.points - at, axis=1), [1.0], at])
            self._known[dims] = math.exp(basis @ self.weights) * self._roofline_s(dims)
        return self._known[dims]

    def _fit(self, costs: np.ndarray) -> np.ndarray:
        n, trend = len(self.points), np.c_[np.ones(len(self.points)), self.points]
        if n <= trend.shape[1]:  # too few for a trend: their mean
            return np.concatenate([np.zeros(n), [costs.mean()], np.zeros(trend.shape[1] - 1)])
        # −|r| is conditionally positive definite, so that smoothing is subtracted from its diagonal.
        distances = np.linalg.norm(self.points[:, None] - self.points, axis=2)
        kernel = distances - SMOOTHING * np.eye(n)
        zeros = np.zeros((trend.shape[1], trend.shape[1]))
        system = np.block([[kernel, trend], [trend.T, zeros]])
        return np.linalg.lstsq(system, np.concatenate([costs, np.zeros(trend.shape[1])]), rcond=None)[0]

    def _size(self, dims: tuple[int, ...]) -> np.ndarray:
        """What the rate depends on: all sizes, or the elements of what treats each one alike."""
        if self.kind in ("gelu", "swiglu", "residual", "rotary"):
            return np.log2([float(elements(self.kind, dims))])
        if self.kind == "attention":
            return np.log2([dims[0] * dims[1], dims[2], dims[3]])
        if self.kind == "loss":
            return np.log2([float(elements(self.kind, dims)), dims[1]])
        return np.log2(np.array(dims, dtype=float))

    def _roofline_s(self, dims: tuple[int, ...]) -> float:
        """About what an operator should take; that its numbers may be of 2 bytes is left to the correction."""
        arithmetic_s = flops(self.kind, dims, self.direction) / self.rates.flop_per_s
        return self.floor_s + max(
            arithmetic_s, moved_bytes(self.kind, dims, self.direction, 4) / self.rates.bytes_per_s
        )


def read_rates(calibration: dict[str, Any]) -> dict[str, Rates]:
    """Reads the rates of a device from its calibration.json, by precision; empty if no operators were measured."""
    ceilings: dict[tuple[str, str | None], float] = {
        (one["quantity"], one["precision"]): one["best"] if one["unit"] != "s" else one["value"]
        for one in calibration["ceilings"]
        if one["value"] is not None
    }
    found: dict[str, list[OperatorTime]] = {}
    for one in calibration.get("operators") or ():
        values = {name: one[name] for name in ("kind", "direction", "seconds", "host_s")}
        found.setdefault(one["precision"], []).append(OperatorTime(dims=tuple(one["dims"]), **values))
    if ("copy", None) not in ceilings or ("operator", None) not in ceilings:
        return {}
    always = [one for one in found.get("fp32", ()) if one.kind in ALWAYS_FP32]
    rates = {}
    for precision, measured in found.items():
        operators = [*always, *(one for one in measured if one.kind not in ALWAYS_FP32)]
        steps = [one for one in calibration.get("small_steps") or () if one["precision"] == precision]
        if ("matrix_product", precision) in ceilings and steps:
            alone = Rates(
                flop_per_s=ceilings["matrix_product", precision],
                bytes_per_s=ceilings["copy", None],
                operator_s=ceilings["operator", None],
                kernel_s=ceilings.get(("kernel_in_graph", None)),
                operators=tuple(operators),
                overheads=(),
            )
            rates[precision] = dataclasses.replace(alone, overheads=_overheads(alone, steps))
    return rates


def _overheads(alone: Rates, small_steps: Sequence[dict[str, Any]]) -> tuple[Overhead, ...]:
    """Takes its operators off what a small step took, unless host and device work side by side; see `Overhead`.

    Older calibrations timed whole steps (`step`) where those of now time the update (`optimizer_step`).
    """
    aside = any(one.host_s is not None for one in alone.operators)
    beyond: dict[tuple[Architecture, bool], dict[tuple[str, int], float]] = {}
    for one in small_steps:
        shape = from_json(ModelShape, one["model"])
        step = StepSpec(batch_size=1, precision=one["precision"], execution="eager")
        known_s = sum(
            calls * alone.seconds(operator.kind, direction, operator.dims)
            for operator in step_operators(shape, step)
            for direction, calls in (("forward", operator.calls), ("backward", operator.backward_calls))
            if calls
            and alone.knows(operator.kind)
            and one["mode"] in ("step", "optimizer_step" if operator.kind == "optimizer" else "forward_backward")
        )
        of_kind = beyond.setdefault((shape.architecture, shape.bias), {})
        of_kind[one["mode"], shape.n_layer] = one["seconds"] - (0.0 if aside else known_s)
    for of_kind in beyond.values():
        for n_layer in [n_layer for mode, n_layer in of_kind if mode == "step"]:
            whole_s = of_kind.pop(("step", n_layer))
            of_kind["optimizer_step", n_layer] = whole_s - of_kind["forward_backward", n_layer]
    found = [_overhead(*kind, times) for kind, times in beyond.items()]
    # An update hardly takes another time for one kind than for the others: their mean.
    updates = {name: fmean(getattr(one, name) for one in found) for name in ("update_s", "update_block_s")}
    return tuple(dataclasses.replace(one, **updates) for one in found)


def _overhead(architecture: Architecture, bias: bool, beyond: dict[tuple[str, int], float]) -> Overhead:
    few, many = min(beyond)[1], max(beyond)[1]
    parts = {}
    for name, mode in (("pass", "forward_backward"), ("update", "optimizer_step")):
        few_s, many_s = beyond[mode, few], beyond[mode, many]
        block_s = min(max((many_s - few_s) / (many - few), 0.0), max(many_s, 0.0) / many)
        parts |= {f"{name}_block_s": block_s, f"{name}_s": max(few_s - few * block_s, 0.0)}
    return Overhead(architecture=architecture, bias=bias, **parts)
