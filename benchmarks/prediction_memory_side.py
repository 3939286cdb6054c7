"""What the processes of `prediction_memory.py` do: measure the memory of one shape's training step."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from workflow_scripts.lib.cell import DRAWN_ON_DEVICE_ABOVE, N_BATCHES
from workflow_scripts.lib.counts import count_parameters
from workflow_scripts.lib.memory_probe import count_on_cuda, trace_on_cpu
from workflow_scripts.lib.specs import DeviceSpec, ModelShape, OptimizerSpec, StepSpec, from_json
from workflow_scripts.lib.step import TrainStep

N_TOKENS = 100_000

Send = Callable[[dict[str, Any]], None]


def measure_memory(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Measures one steady step as `memory_probe` does, on tokens that are all alike.

    Args:
        arguments: `device`, `shape`, `step`, `optimizer` (specs as JSON).
        send: takes messages; none is sent.

    Returns:
        In bytes `peak_allocated_bytes`, `peak_reserved_bytes` and `process_device_bytes` (None where nobody tells),
        `phases` (None for a captured step), and `data_bytes`, what tokens and windows take on the device.
    """
    device = from_json(DeviceSpec, arguments["device"])
    shape, step = from_json(ModelShape, arguments["shape"]), from_json(StepSpec, arguments["step"])
    optimizer, where = from_json(OptimizerSpec, arguments["optimizer"]), torch.device(device.torch_name)
    tokens = np.zeros(max(N_TOKENS, shape.sequence_length + 1), dtype=np.uint16)
    if where.type == "cuda":
        torch.ones(2, 2, device=where) @ torch.ones(2, 2, device=where)  # a product beside the step, as a cell's anchor
    drawn_on = "device" if count_parameters(shape).total > DRAWN_ON_DEVICE_ABOVE else "cpu"
    probe = trace_on_cpu if where.type == "cpu" else count_on_cuda
    built, found = probe(lambda: TrainStep.build(shape, step, optimizer, device, tokens, N_BATCHES, 0, drawn_on), where)
    return {
        "peak_allocated_bytes": found["peak_allocated_bytes"],
        "peak_reserved_bytes": found.get("peak_reserved_bytes"),
        "process_device_bytes": found.get("process_device_bytes"),
        "phases": found["phases"] or None,
        "data_bytes": built.batches.allocated_bytes(),
        "attention": built.observe_forward()["attention_backend"],
    }
