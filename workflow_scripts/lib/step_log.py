"""Loss, gradient norm and time of each training step, read from the device in blocks so that no step waits for it."""

import time
from typing import Protocol

import torch


class StepLog:
    """Runs steps and keeps what they show until `read` fetches it.

    Args:
        step: a `TrainStep`.
        device: where it computes.
        capacity: the longest block, in steps.
    """

    def __init__(self, step, device: torch.device, capacity: int):
        self.step, self.capacity = step, capacity
        self.values = torch.zeros(2, capacity, dtype=torch.float32, device=device)  # losses; gradient norms
        self.clock: Clock = EventClock() if device.type == "cuda" else HostClock(step.synchronise)
        self.n = 0

    def run_step(self) -> None:
        """Runs one step between two readings of the clock."""
        self.clock.start()
        self.step.run()
        self.clock.stop()
        # The step's loss and norm are overwritten by the next step: copied on the device, outside the timed part.
        self.values[0, self.n].copy_(self.step.loss)
        self.values[1, self.n].copy_(self.step.grad_norm)
        self.n += 1

    def read(self) -> list[tuple[float, float, float]]:
        """Gives (loss, gradient norm, step time in s) of the steps since the last call, in order. Synchronises."""
        losses, norms = self.values[:, : self.n].tolist()  # host-device synchronisation
        self.n = 0
        return list(zip(losses, norms, self.clock.read(), strict=True))


class Clock(Protocol):
    """Times steps: `start` and `stop` around each, `read` gives the times in s since the last `read`."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def read(self) -> list[float]: ...


class HostClock:
    """The host's clock, each step synchronised with its device (on a CPU that is nothing)."""

    def __init__(self, synchronise):
        self.synchronise = synchronise
        self.started = 0.0
        self.times: list[float] = []

    def start(self) -> None:
        self.started = time.perf_counter()

    def stop(self) -> None:
        self.synchronise()
        self.times.append(time.perf_counter() - self.started)

    def read(self) -> list[float]:
        times, self.times = self.times, []
        return times


class EventClock:
    """CUDA events in the stream: the device's own time from reaching a step to having done it, gaps inside included."""

    def __init__(self):
        self.pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def start(self) -> None:
        self.pairs.append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
        self.pairs[-1][0].record()

    def stop(self) -> None:
        self.pairs[-1][1].record()

    def read(self) -> list[float]:
        torch.cuda.synchronize()
        pairs, self.pairs = self.pairs, []
        return [start.elapsed_time(end) / 1e3 for start, end in pairs]
