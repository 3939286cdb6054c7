"""Predicts step times from measured ones: a few non-negative costs per unit of work, fitted on the grid's cells.

A step costs a constant, a share for each layer (operators to launch), for each activation element moved, and for each
FLOP. The costs are fitted by non-negative least squares on relative residuals, so that a short step weighs as much as a
long one, and judged on each cell by leaving it out.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from workflow_scripts.lib.counts import flops_per_token
from workflow_scripts.lib.specs import ModelShape

FEATURES = ("step", "layers", "activation_elements", "flops")
MIN_CELLS = 6
"""Fewer cells than this determine four costs too loosely to be judged by leaving one out."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CostModel:
    """Fitted costs, in seconds per unit of each feature, and the mean absolute relative error on cells left out."""

    coefficients: tuple[float, ...]
    n_fitted: int
    leave_one_out_error: float

    def step_time_s(self, shape: ModelShape, batch_size: int) -> float:
        """Predicts the time of one full step, in seconds."""
        return float(np.dot(features(shape, batch_size), self.coefficients))


def features(shape: ModelShape, batch_size: int) -> np.ndarray:
    """The work of one full step: (4,) float64, in the order of `FEATURES`."""
    tokens = batch_size * shape.sequence_length
    activations = tokens * (shape.n_layer * (8 * shape.n_embd + 2 * shape.n_inner) + shape.vocab_size)
    flops = tokens * flops_per_token(shape, shape.sequence_length).training
    return np.array([1.0, shape.n_layer, activations, flops], dtype=np.float64)


def fit(work: Sequence[tuple[ModelShape, int]], step_times_s: Sequence[float]) -> tuple[CostModel, list[float]] | None:
    """Fits the costs of one device, precision and execution.

    Args:
        work: shape and batch size of each measured cell.
        step_times_s: median step time of each.

    Returns:
        The model, and for each cell the time predicted by a fit without it; None with fewer than `MIN_CELLS` cells.
    """
    if len(work) < MIN_CELLS:
        return None
    matrix = np.stack([features(shape, batch_size) for shape, batch_size in work])
    times = np.asarray(step_times_s, dtype=np.float64)
    left_out = []
    for index in range(len(times)):
        keep = np.arange(len(times)) != index
        left_out.append(float(matrix[index] @ _solve(matrix[keep], times[keep])))
    error = float(np.mean(np.abs(np.array(left_out) / times - 1)))
    coefficients = tuple(float(value) for value in _solve(matrix, times))
    return CostModel(coefficients=coefficients, n_fitted=len(times), leave_one_out_error=error), left_out


def _solve(matrix: np.ndarray, times: np.ndarray) -> np.ndarray:
    relative = matrix / times[:, None]
    scale = np.abs(relative).max(axis=0)  # FLOPs are 1e9 times the constant: equal scales keep the solver exact
    return nnls(relative / scale, np.ones(len(times)))[0] / scale
