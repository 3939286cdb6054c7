"""Books every second of a process under exactly one phase, so that the phases sum to the wall time."""

import contextlib
import time
from collections.abc import Callable, Iterator


class TimeSheet:
    """Seconds spent per phase.

    Args:
        phase: what the time from now on is booked under, until `spend` or `switch` says otherwise.
        booked: what an earlier process of the same run had booked.
        clock: gives seconds; a test passes its own.
    """

    def __init__(self, phase: str, booked: dict[str, float] | None = None, clock: Callable[[], float] = time.monotonic):
        self.phase, self.clock = phase, clock
        self.booked = dict(booked or {})
        self.since = clock()

    def switch(self, phase: str) -> None:
        """Books the time since the last switch and goes on under another phase."""
        now = self.clock()
        self.booked[self.phase] = self.booked.get(self.phase, 0.0) + now - self.since
        self.phase, self.since = phase, now

    @contextlib.contextmanager
    def spend(self, phase: str) -> Iterator[None]:
        """Books a block of code under `phase`, then returns to the phase before it."""
        before = self.phase
        self.switch(phase)
        try:
            yield
        finally:
            self.switch(before)

    def totals(self) -> dict[str, float]:
        """Seconds per phase up to now."""
        self.switch(self.phase)
        return dict(self.booked)
