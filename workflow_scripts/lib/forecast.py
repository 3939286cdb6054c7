"""What a step of a shape will take on a device of a study: time by its cost model, memory by the memory model.

The one place that reads cost_model.json for a prediction. Nothing here imports torch.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from workflow_scripts.lib.cost_model import CostModel
from workflow_scripts.lib.memory_model import estimate_memory
from workflow_scripts.lib.specs import DeviceType, ModelShape, OptimizerSpec, StepSpec, from_json


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forecast:
    """One step on one device; times are None where no cost model was fitted for its precision and execution.

    `low_s` and `high_s` are None where the model states no interval, `bound` is what limits the step, if it is known.
    """

    step_time_s: float | None
    low_s: float | None = None
    high_s: float | None = None
    bound: str | None = None
    peak_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forecaster:
    """The fitted costs of a study, by device and by precision and execution, and the type of each device."""

    costs: dict[str, dict[str, CostModel]]
    types: dict[str, DeviceType]

    def knows(self, device: str, step: StepSpec) -> bool:
        """Whether the time of such a step can be predicted on a device."""
        return _group(step) in self.costs.get(device, {})

    def forecast(self, device: str, shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec) -> Forecast:
        """Predicts one step on one device."""
        peak_bytes = estimate_memory(shape, step, optimizer, self.types[device]).peak_bytes
        model = self.costs.get(device, {}).get(_group(step))
        if model is None:
            return Forecast(step_time_s=None, peak_bytes=peak_bytes)
        return Forecast(step_time_s=model.step_time_s(shape, step.batch_size), peak_bytes=peak_bytes)


def _group(step: StepSpec) -> str:
    return f"{step.precision}-{step.execution}"


def read_forecaster(cost_model: Path, types: dict[str, DeviceType]) -> Forecaster:
    """Reads the fitted costs of the devices whose types are given."""
    fitted: dict[str, dict[str, Any]] = json.loads(cost_model.read_text(encoding="utf-8"))["devices"]
    costs = {
        device: {group: from_json(CostModel, values) for group, values in groups.items()}
        for device, groups in fitted.items()
    }
    return Forecaster(costs=costs, types=types)
