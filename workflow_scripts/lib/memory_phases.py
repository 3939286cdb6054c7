"""In which phase of a training step memory is largest: forward, backward or optimizer.

A step announces its phases (`announce_phases`); what listens depends on what the device can tell: a tracer's events
(`peaks_of`), counters that remember their own peak (`PeakCounter`), or nothing but the amount of the moment
(`PeakSampler`). Nothing here knows torch, so a test can pass any step and any memory.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any

PHASES = ("forward", "backward", "optimizer")


def announce_phases(step: Any, enter: Callable[[str], None]) -> None:
    """Lets a `TrainStep` call `enter` with the name of each phase as it begins, from now on.

    A micro-batch's forward pass begins where its loss is asked for and ends where it is there; the update begins by
    looking its learning rate up. What precedes the first loss (the batch is gathered, old gradients are dropped)
    belongs to whatever phase the caller has entered. A captured step announces phases only while it is captured.
    """
    loss_of, set_rate = step.loss_of, step.optimizer.set_rate

    def announced_loss(*inputs: Any) -> Any:
        enter("forward")
        loss = loss_of(*inputs)
        enter("backward")
        return loss

    def announced_rate(*when: Any) -> None:
        enter("optimizer")
        set_rate(*when)

    step.loss_of, step.optimizer.set_rate = announced_loss, announced_rate


def peaks_of(events: Iterable[str | int]) -> dict[str, int]:
    """Adds up a trace of allocations.

    Args:
        events: in the order of time: bytes that were allocated or, negative, freed; between them names of what begins
            there.

    Returns:
        For each name the largest sum of all bytes so far while it lasted, which is at least the sum at its beginning.
    """
    total, name = 0, ""
    peaks: dict[str, int] = {}
    for event in events:
        if isinstance(event, str):
            name = event
        else:
            total += event
        peaks[name] = max(peaks.get(name, total), total)
    return peaks


class PeakCounter:
    """Peaks of phases on a device whose counter remembers its largest value.

    Args:
        peak: reads that value, in bytes.
        reset: sets it back to the amount of the moment.
    """

    def __init__(self, peak: Callable[[], int], reset: Callable[[], None]):
        self.peak, self.reset = peak, reset
        self.peaks: dict[str, int] = {}
        self.phase: str | None = None

    def enter(self, phase: str | None) -> None:
        """Ends the phase before, and begins this one."""
        if self.phase is not None:
            self.peaks[self.phase] = max(self.peaks.get(self.phase, 0), self.peak())
        self.reset()
        self.phase = phase


class PeakSampler:
    """Peaks of phases on a device that tells nothing but the amount of the moment: read often, and at each border.

    What lasts shorter than the interval can be missed, so a peak is a lower bound.

    Args:
        read: bytes at this moment.
        every_s: the interval.
    """

    def __init__(self, read: Callable[[], int], every_s: float):
        self.read, self.every_s = read, every_s
        self.peaks: dict[str, int] = {}
        self.phase: str | None = None
        self.n_samples = 0
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "PeakSampler":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def enter(self, phase: str | None) -> None:
        """Reads at the end of the phase before, and begins this one."""
        self._note()
        with self._lock:
            self.phase = phase
        self._note()

    def _sample(self) -> None:
        while not self._ended.wait(self.every_s):
            self._note()

    def _note(self) -> None:
        with self._lock:
            if self.phase is not None:
                self.n_samples += 1
                self.peaks[self.phase] = max(self.peaks.get(self.phase, 0), self.read())
