"""Times one step with several timers in turn, in one process: Assay's sampler and those of torch.utils.benchmark.

The very same `TrainStep.run` is timed by all. They go through once forwards and once backwards, so that a device that
slows down does not look like a difference between timers.
"""

import time
from collections.abc import Callable
from typing import Any

from torch.utils.benchmark import Timer

from workflow_scripts.lib.cell import build_step
from workflow_scripts.lib.device_timing import clock_of
from workflow_scripts.lib.specs import CellSpec, from_json
from workflow_scripts.lib.step import TrainStep
from workflow_scripts.lib.timing import sample_steps

ASSAY, BLOCKED, ADAPTIVE = "assay", "blocked_autorange", "adaptive_autorange"
ORDER = (ASSAY, BLOCKED, ADAPTIVE, ADAPTIVE, BLOCKED, ASSAY)


def compare_timers(arguments: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Times one cell's step with each timer, twice.

    Args:
        arguments: `cell` (a `CellSpec` as JSON, whose `measure` bounds each timer), `tokens` and `corpus` (paths).
        send: takes `{"partial": result so far}`.

    Returns:
        `order`; `rounds`, in that order: `timer`, `samples_s` (in order, seconds per step, warm ones only),
        `steps_per_sample`, `warned` (the timer itself has doubts) and `elapsed_s` (warming up included); `observed`.
    """
    cell = from_json(CellSpec, arguments["cell"])
    step = build_step(cell, arguments)
    timers = timers_of(step, cell)
    result: dict[str, Any] = {"order": list(ORDER), "rounds": []}
    for name in ORDER:
        start = time.perf_counter()
        found = timers[name]()
        result["rounds"].append({"timer": name, **found, "elapsed_s": time.perf_counter() - start})
        send({"partial": dict(result)})
    return {**result, "observed": step.observed()}


def timers_of(step: TrainStep, cell: CellSpec) -> dict[str, Callable[[], dict[str, Any]]]:
    """Gives each timer, ready to be called as often as wanted."""
    measure = cell.measure

    def assay() -> dict[str, Any]:
        samples = sample_steps(step.run, step.synchronise, clock=clock_of(step.device), measure=measure)
        return {"samples_s": samples.samples_s, "steps_per_sample": samples.block_size, "warned": False}

    def torchs() -> Timer:
        # Its default of one thread would time something else; timeit, on which it rests, turns garbage collection off.
        return Timer("run()", globals={"run": step.run}, num_threads=cell.device.threads)

    def found(measurement: Any) -> dict[str, Any]:
        return {
            "samples_s": list(measurement.times),
            "steps_per_sample": measurement.number_per_run,
            "warned": bool(measurement.has_warnings),
        }

    return {
        ASSAY: assay,
        BLOCKED: lambda: found(torchs().blocked_autorange(min_run_time=measure.max_seconds)),
        # Left alone it stops at four samples, which have no interval to compare.
        ADAPTIVE: lambda: found(
            torchs().adaptive_autorange(min_run_time=measure.max_seconds / 4, max_run_time=measure.max_seconds)
        ),
    }
