"""What the processes of `prediction.py` do: time steps of many shapes, one after the other or in turn."""

import dataclasses
import gc
import multiprocessing
import random
import statistics
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from workflow_scripts.lib.cell import DRAWN_ON_DEVICE_ABOVE
from workflow_scripts.lib.counts import count_parameters
from workflow_scripts.lib.device_timing import clock_of
from workflow_scripts.lib.frames import roomy
from workflow_scripts.lib.memory import peak_memory, reset_peak_memory
from workflow_scripts.lib.outcome import Unavailable, is_out_of_memory, one_line
from workflow_scripts.lib.process_memory import touch_memory
from workflow_scripts.lib.specs import DeviceSpec, MeasureSpec, ModelShape, OptimizerSpec, StepSpec, from_json
from workflow_scripts.lib.step import TrainStep
from workflow_scripts.lib.timing import median_interval, sample_steps

N_TOKENS, N_BATCHES = 200_000, 100
ALONE = 2  # samples that begin when the device has nothing to do: the first, which is waited for, and the next
HEAP_BYTES = 2**31  # of a processor's memory: what the largest shape takes, in a heap that others cut into pieces

Send = Callable[[dict[str, Any]], None]


def measure_shapes(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Times the training step of each shape in this process; each is gone before the next is built.

    Args:
        arguments: `device`, `optimizer`, `measure` (specs as JSON); `shapes`: pairs of ModelShape and StepSpec.
        send: takes of each shape its `index`, `step_time_s` (median of the warm steps, `interval_s` its 95 % interval,
            None for few), `n` of them and `peak_allocated_bytes` (None where not counted), or `failed`: why it could
            not be measured.

    Returns:
        `environment`: what measured.
    """
    bench = _Bench(arguments)
    for index in range(len(arguments["shapes"])):
        send(bench.build(index)[0])
        torch._dynamo.reset()
        bench.clear()
    return {"environment": bench.environment()}


def measure_in_turn(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Times the training steps of shapes in rounds, each in another order, when all have been built.

    Building takes most of the time where steps are compiled, and can go on side by side; timing cannot.

    Args:
        arguments: as of `measure_shapes`; `rounds`; `builders`: how many processes build a share of the shapes each,
            which stay alive there.
        send: takes of each shape what `measure_shapes` tells, its time with each round, but no peak, which the pieces
            that others leave make larger.

    Returns:
        As `measure_shapes`.
    """
    n, spawn = len(arguments["shapes"]), multiprocessing.get_context("spawn")
    shares = [range(first, n, arguments["builders"]) for first in range(min(arguments["builders"], n))]
    builders, owners = [], {}
    for share in shares:
        ours, theirs = spawn.Pipe()
        spawn.Process(target=_build_and_time, args=(arguments, share, theirs), daemon=True).start()
        theirs.close()  # so that its end is seen
        builders.append(ours)
    for builder, share in zip(builders, shares, strict=True):
        for index in share:
            told = builder.recv()
            send({name: told[name] for name in ("index", "failed") if name in told})
            if "failed" not in told:
                owners[index] = builder
        environment = builder.recv()
    for number in range(arguments["rounds"]):
        for index in random.Random(number).sample(sorted(owners), len(owners)):
            owners[index].send(index)
            send(owners[index].recv())
    for builder in builders:
        builder.send(None)
    return {"environment": environment}


@roomy
def _build_and_time(arguments: dict[str, Any], share: range, coordinator: Connection) -> None:
    """Builds a share of the shapes, then times those that it is asked for."""
    bench, alive = _Bench(arguments), {}
    torch._dynamo.config.recompile_limit = len(share) + 1  # each compiles the same functions once more
    for index in share:
        told, step = bench.build(index)
        alive[index] = step, told.get("step_time_s")
        coordinator.send(told)
        bench.clear()
    coordinator.send(bench.environment())
    for index in iter(coordinator.recv, None):
        coordinator.send({"index": index, **bench.visit(*alive[index])})


class _Bench:
    """Builds and times steps on a device."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.device = from_json(DeviceSpec, arguments["device"])
        self.optimizer = from_json(OptimizerSpec, arguments["optimizer"])
        self.measure = from_json(MeasureSpec, arguments["measure"])
        self.shapes = arguments["shapes"]
        self.where = torch.device(self.device.torch_name)
        if self.where.type == "cpu":
            touch_memory(HEAP_BYTES)

    def build(self, index: int) -> tuple[dict[str, Any], TrainStep | None]:
        """Builds and times one; gives what is told of it, and its step if it could be measured."""
        model, spec = from_json(ModelShape, self.shapes[index][0]), from_json(StepSpec, self.shapes[index][1])
        tokens = np.random.default_rng(0).integers(0, model.vocab_size, N_TOKENS).astype(np.uint16)
        large = count_parameters(model).total > DRAWN_ON_DEVICE_ABOVE
        drawn_on = "device" if self.device.type != "cpu" or large else "cpu"
        try:
            step = TrainStep.build(model, spec, self.optimizer, self.device, tokens, N_BATCHES, 0, drawn_on)
            first = self.time(step)
        except (RuntimeError, Unavailable) as error:
            if not (isinstance(error, Unavailable) or is_out_of_memory(error)):
                raise
            return {"index": index, "failed": one_line(str(error))}, None
        peak = peak_memory(self.where)["peak_allocated_bytes"]
        return {"index": index, **first, "peak_allocated_bytes": peak}, step

    def time(self, step: TrainStep) -> dict[str, Any]:
        """Times a step that was just built."""
        samples = sample_steps(step.run, step.synchronise, clock=clock_of(step.device), measure=self.measure)
        return _told(samples.samples_s or samples.cold_s[-1:])

    def visit(self, step: TrainStep, usual_s: float) -> dict[str, Any]:
        """Times a warm step, but for the first two samples: with nothing before them the host has nothing to go beside.

        Args:
            step: it ran before.
            usual_s: about what it takes; a visit lasts until there are further samples.
        """
        lasting = max(self.measure.max_seconds, 2 * ALONE * usual_s)
        measure = dataclasses.replace(self.measure, max_seconds=lasting)
        samples = sample_steps(step.run, step.synchronise, clock=clock_of(step.device), measure=measure)
        times = [*samples.cold_s, *samples.samples_s]
        return _told(times[ALONE:] or times[-1:])

    def clear(self) -> None:
        """Lets the next shape's peak be its own."""
        gc.collect()  # of what compiled code held, too
        reset_peak_memory(self.where)

    def environment(self) -> dict[str, Any]:
        name = torch.cuda.get_device_name(self.where) if self.where.type == "cuda" else None
        return {"torch": torch.__version__, "cuda": torch.version.cuda, "device_name": name}


def _told(times_s: list[float]) -> dict[str, Any]:
    return {"step_time_s": statistics.median(times_s), "interval_s": median_interval(times_s), "n": len(times_s)}
