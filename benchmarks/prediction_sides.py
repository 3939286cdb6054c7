"""What the processes of `prediction.py` do: time steps of many shapes, one after the other."""

import gc
import random
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from workflow_scripts.lib.cell import DRAWN_ON_DEVICE_ABOVE
from workflow_scripts.lib.counts import count_parameters
from workflow_scripts.lib.device_timing import clock_of
from workflow_scripts.lib.memory import peak_memory, reset_peak_memory
from workflow_scripts.lib.outcome import Unavailable, is_out_of_memory, one_line
from workflow_scripts.lib.process_memory import touch_memory
from workflow_scripts.lib.specs import DeviceSpec, MeasureSpec, ModelShape, OptimizerSpec, StepSpec, from_json
from workflow_scripts.lib.step import TrainStep
from workflow_scripts.lib.timing import median_interval, sample_steps

N_TOKENS, N_BATCHES = 200_000, 100
HEAP_BYTES = 2**31  # of a processor's memory: what the largest shape takes, in a heap that others cut into pieces

Send = Callable[[dict[str, Any]], None]


def measure_shapes(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Times the training step of each shape in this process.

    Args:
        arguments: `device`, `optimizer`, `measure` (specs as JSON); `shapes`: pairs of ModelShape and StepSpec;
            `rounds`: how often each is timed. Once: each is gone before the next is built; more often: all stay, and
            are timed in turn, in an order that differs between rounds.
        send: takes, each time, a shape's `index` with `step_time_s` (median of the warm steps, `interval_s` its 95 %
            interval, None for few), `n` of them and, the first time, `peak_allocated_bytes` (None where not counted),
            or `failed`: why it could not be measured.

    Returns:
        `environment`: what measured.
    """
    device = from_json(DeviceSpec, arguments["device"])
    where = torch.device(device.torch_name)
    optimizer = from_json(OptimizerSpec, arguments["optimizer"])
    if where.type == "cpu":
        touch_memory(HEAP_BYTES)
    measure = from_json(MeasureSpec, arguments["measure"])
    base, rounds, alive = _own_of_all(where), arguments["rounds"], {}
    torch._dynamo.config.recompile_limit = len(arguments["shapes"]) + 1  # each compiles the same functions once more
    for index, (shape, step) in enumerate(arguments["shapes"]):
        model, spec = from_json(ModelShape, shape), from_json(StepSpec, step)
        others = _allocated(where) - base
        try:
            built = _build(model, spec, optimizer, device)
            first = _time(built, measure)
        except (RuntimeError, Unavailable) as error:
            if not (isinstance(error, Unavailable) or is_out_of_memory(error)):
                raise
            send({"index": index, "failed": one_line(str(error))})
        else:
            peak = peak_memory(where)["peak_allocated_bytes"]
            send({"index": index, **first, "peak_allocated_bytes": None if peak is None else peak - others})
            if rounds > 1:
                alive[index] = built
        built = None
        if rounds == 1:
            torch._dynamo.reset()
        gc.collect()  # of what compiled code held, too: it would count as the next shape's
        reset_peak_memory(where)
    for number in range(1, rounds):
        for index in random.Random(number).sample(sorted(alive), len(alive)):
            send({"index": index, **_time(alive[index], measure)})
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else None
    environment = {"torch": torch.__version__, "cuda": torch.version.cuda, "device_name": name}
    return {"environment": environment}


def _build(model: ModelShape, spec: StepSpec, optimizer: OptimizerSpec, device: DeviceSpec) -> TrainStep:
    tokens = np.random.default_rng(0).integers(0, model.vocab_size, N_TOKENS).astype(np.uint16)
    drawn_on = "device" if device.type != "cpu" or count_parameters(model).total > DRAWN_ON_DEVICE_ABOVE else "cpu"
    return TrainStep.build(model, spec, optimizer, device, tokens, N_BATCHES, 0, drawn_on)


def _time(step: TrainStep, measure: MeasureSpec) -> dict[str, Any]:
    samples = sample_steps(step.run, step.synchronise, clock=clock_of(step.device), measure=measure)
    times = samples.samples_s or samples.cold_s[-1:]
    return {"step_time_s": statistics.median(times), "interval_s": median_interval(times), "n": len(times)}


def _own_of_all(where: torch.device) -> int:
    """Bytes that every step finds: on CUDA the workspaces of products, forward and backward."""
    if where.type != "cuda":
        return 0
    torch.cuda.set_device(where)
    leaf = torch.ones(2, 2, device=where, requires_grad=True)
    (leaf @ leaf).sum().backward()
    del leaf
    return _allocated(where)


def _allocated(where: torch.device) -> int:
    return torch.cuda.memory_allocated(where) if where.type == "cuda" else 0
