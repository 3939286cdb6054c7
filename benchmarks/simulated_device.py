"""A device under a clock of its own, and how torch.utils.benchmark and nanoGPT time its steps.

The tools are real where they can be: torch's `Timer` runs here as anywhere. nanoGPT's way is written after the loop of
its `train.py`, which prints the time of every tenth iteration and has nothing that could notice a fault.
"""

from collections.abc import Callable, Iterator

import numpy as np
from torch.utils.benchmark import Timer

LAUNCH_S = 20e-6
READ_S = 1e-7
STEP_S = 0.03
LOG_EVERY = 10  # nanoGPT's log_interval


class Machine:
    """A device under a clock of its own: launching a step takes `LAUNCH_S`, doing it the next of `times`, in s."""

    def __init__(self, times: Iterator[float], synchronises: bool = True):
        self.times, self.synchronises = times, synchronises
        self.now = self.busy_until = 0.0

    def run(self, scale: float = 1.0) -> None:
        self.now += LAUNCH_S
        self.busy_until = max(self.busy_until, self.now) + scale * next(self.times)

    def synchronise(self) -> None:
        if self.synchronises:
            self.now = max(self.now, self.busy_until)

    def read(self) -> float:
        """The host's time; reading it costs `READ_S`."""
        self.now += READ_S
        return self.now


def steps(shape: Callable[[int], float], noise: float = 0.01) -> Iterator[float]:
    """Step times in s: `STEP_S` times what `shape` says of the step, with a fixed noise."""
    random = np.random.default_rng(7)
    number = 0
    while True:
        yield STEP_S * shape(number) * float(np.exp(noise * random.standard_normal()))
        number += 1


def torch_timer(machine: Machine, for_s: float) -> tuple[float, str]:
    """The median that torch's Timer gives, and its warning; its clock synchronises, as its default does."""

    def synchronised() -> float:
        machine.synchronise()
        return machine.read()

    timer = Timer("run()", globals={"run": machine.run}, timer=synchronised)
    measured = timer.blocked_autorange(min_run_time=for_s)
    warning = f"IQR is {measured.iqr / measured.median:.0%} of the median" if measured.has_warnings else ""
    return measured.median, warning


def nanogpt_way(machine: Machine, n_iterations: int = 100) -> tuple[float, str]:
    """The time that train.py's log prints last; the loss that it prints beside it has waited for the device."""
    printed, before = 0.0, machine.read()
    for iteration in range(n_iterations + 1):
        machine.run()
        machine.synchronise()  # generous: train.py itself waits only in the iterations that it logs
        now = machine.read()
        printed = now - before if iteration % LOG_EVERY == 0 else printed
        before = now
    return printed, ""
