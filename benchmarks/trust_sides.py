"""What each process of `trust.py` does: one cell timed in Assay's way and in nanoGPT's, one after the other."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from workflow_scripts.lib.correctness import OPTIMIZER
from workflow_scripts.lib.device_timing import clock_of
from workflow_scripts.lib.machine_state import between, snapshot
from workflow_scripts.lib.specs import DeviceSpec, MeasureSpec, ModelShape, StepSpec, from_json
from workflow_scripts.lib.step import TrainStep
from workflow_scripts.lib.timing import sample_steps

LOG_EVERY = 10  # train.py's log_interval
LOGGED = 5  # lines of its log after the first; the last one counts, as a reader takes it
BURN_IN, MEANT = 10, 20  # bench.py's two stages


def time_both_ways(arguments: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Times the same `TrainStep.run` in three ways.

    Args:
        arguments: `model`, `step`, `device`, `measure` (specs as JSON), `turn` (of this process; odd ones go through
            the ways backwards).
        send: unused.

    Returns:
        `assay`: median of the warm samples; `log`: the time of one iteration as train.py's log prints it, which waits
        for the device in every tenth iteration only; `mean`: of 20 iterations after 10, as bench.py; in s per step.
        `logged`: all times that the log would print, in order. `n_samples`. `others_cores`: cores that other processes
        kept busy meanwhile, None where not readable.
    """
    device = from_json(DeviceSpec, arguments["device"])
    shape, measure = from_json(ModelShape, arguments["model"]), from_json(MeasureSpec, arguments["measure"])
    tokens = np.random.default_rng(0).integers(shape.vocab_size, size=200_000).astype(np.uint8)
    step = TrainStep.build(shape, from_json(StepSpec, arguments["step"]), OPTIMIZER, device, tokens, 1000, 0)
    found: dict[str, Any] = {}

    def assay() -> None:
        samples = sample_steps(step.run, step.synchronise, clock=clock_of(step.device), measure=measure)
        found["assay"], found["n_samples"] = statistics.median(samples.samples_s), len(samples.samples_s)

    def log() -> None:
        found["logged"] = train_py(step)
        found["log"] = found["logged"][-1]

    def mean() -> None:
        found["mean"] = bench_py(step)

    ways = [assay, log, mean]
    before = snapshot(device)
    for way in ways if arguments["turn"] % 2 == 0 else ways[::-1]:
        way()
    return {**found, "others_cores": between(before, snapshot(device))["others_cores"]}


def train_py(step: TrainStep) -> list[float]:
    """The times that train.py's log would print, in s: an iteration from one reading of the clock to the next."""
    printed, before = [], time.time()
    for iteration in range(LOG_EVERY * LOGGED + 1):
        step.run()
        if iteration % LOG_EVERY == 0:
            step.loss.item()  # synchronises, as its logging does
        now = time.time()
        if iteration % LOG_EVERY == 0:
            printed.append(now - before)
        before = now
    return printed


def bench_py(step: TrainStep) -> float:
    """The mean that bench.py would print, in s."""
    for n_iterations in (BURN_IN, MEANT):
        step.synchronise()
        before = time.time()
        for _ in range(n_iterations):
            step.run()
            step.loss.item()  # for its progress line, in every iteration
        step.synchronise()
        after = time.time()
    return (after - before) / MEANT
