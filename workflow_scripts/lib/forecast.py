"""What a step of a shape will take on a device of a study: time by its cost model, memory by the memory model.

The one place that joins the two. Nothing here imports torch.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workflow_scripts.lib.cost_model import TimeModel, read_models
from workflow_scripts.lib.gpu import UNKNOWN, Gpu
from workflow_scripts.lib.memory_model import MemoryEstimate, estimate_memory
from workflow_scripts.lib.specs import DeviceType, ModelShape, OptimizerSpec, StepSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forecast:
    """One step on one device; times are None where no cost model was fitted for its precision and execution.

    `low_s` and `high_s` are the ends of the 95 % interval, `bound` is what limits the step.
    """

    step_time_s: float | None
    low_s: float | None = None
    high_s: float | None = None
    bound: str | None = None
    peak_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forecaster:
    """The fitted costs of a study, by device and by precision and execution, and what is known of each device.

    `gpus` and `threads` size what kernels take beside tensors.
    """

    costs: dict[str, dict[str, TimeModel]]
    types: dict[str, DeviceType]
    gpus: dict[str, Gpu] = dataclasses.field(default_factory=dict)
    threads: dict[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, costs: dict[str, dict[str, TimeModel]], devices: Sequence[Mapping[str, Any]]) -> "Forecaster":
        """Takes rows of devices.csv: `device`, `type` and what `Gpu.of` reads."""
        return cls(
            costs=costs,
            types={row["device"]: row["type"] for row in devices},
            gpus={row["device"]: Gpu.of(row) for row in devices},
            threads={row["device"]: int(row["threads"]) for row in devices},
        )

    def knows(self, device: str, step: StepSpec) -> bool:
        """Whether the time of such a step can be predicted on a device."""
        return _group(step) in self.costs.get(device, {})

    def memory(self, device: str, shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec) -> MemoryEstimate:
        """Predicts what one step takes of one device's memory."""
        gpu, threads = self.gpus.get(device, UNKNOWN), self.threads.get(device, 1)
        return estimate_memory(shape, step, optimizer, self.types[device], gpu=gpu, threads=threads)

    def forecast(self, device: str, shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec) -> Forecast:
        """Predicts one step on one device."""
        peak_bytes = self.memory(device, shape, step, optimizer).peak_bytes
        if not self.knows(device, step):
            return Forecast(step_time_s=None, peak_bytes=peak_bytes)
        expected = self.costs[device][_group(step)].predict(shape, step, optimizer)
        return Forecast(
            step_time_s=expected.step_time_s,
            low_s=expected.low_s,
            high_s=expected.high_s,
            bound=expected.bound,
            peak_bytes=peak_bytes,
        )


def _group(step: StepSpec) -> str:
    return f"{step.precision}-{step.execution}"


def read_forecaster(cost_model: Path, devices: Sequence[Mapping[str, Any]]) -> Forecaster:
    """Reads the fitted costs of a study's devices, which are rows of devices.csv."""
    return Forecaster.of(read_models(cost_model), devices)
