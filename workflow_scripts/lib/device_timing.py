"""The clocks of devices, and fixed pieces of work to try them on."""

from collections.abc import Callable

import torch

from workflow_scripts.lib.timing import Clock, HostClock, check_synchronised

EVENT_RESOLUTION_S = 0.5e-6  # CUDA Runtime API, cudaEventElapsedTime
ANCHOR_SAMPLES = 10
# Side of the anchor's square matrices: some milliseconds on one device of each type, fixed for good.
ANCHOR_SIZES = {"cpu": 768, "cuda": 4096, "mps": 2048}


class EventClock:
    """Marks events in the current CUDA stream: the device's own time, whenever the host gets round to reading it."""

    needs_synchronised_marks = False
    resolution_s = EVENT_RESOLUTION_S

    def __init__(self):
        self.now = HostClock().now

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        end.synchronize()
        return start.elapsed_time(end) / 1e3


def clock_of(device: torch.device) -> Clock:
    """Gives the clock that a device's steps are timed with."""
    return EventClock() if device.type == "cuda" else HostClock()


def synchronise(device: torch.device) -> None:
    """Waits until the device has done all that was asked of it; a CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def products(device: torch.device) -> Callable[[int], None]:
    """Gives work for a timer: one matrix product, 1 or 2 times as large, in the float32 of the moment."""
    n = ANCHOR_SIZES[device.type]
    generator = torch.Generator().manual_seed(0)  # not zeros: a GPU's power, and so its clock, depends on the data
    left = torch.randn(2 * n, n, generator=generator).to(device)
    right = torch.randn(n, n, generator=generator).to(device)
    out = torch.empty(2 * n, n, device=device)

    def run(scale: int) -> None:
        torch.mm(left[: scale * n], right, out=out[: scale * n])

    return run


def time_anchor(device: torch.device) -> list[float]:
    """Times the anchor: the same IEEE float32 product in every process, so that sittings can be compared.

    Returns:
        Seconds of `ANCHOR_SAMPLES` products one after the other, the first ones of the process left out.
    """
    torch.set_float32_matmul_precision("highest")
    run, clock = products(device), clock_of(device)
    times = []
    for _ in range(ANCHOR_SAMPLES + 3):
        synchronise(device)
        start = clock.mark()
        run(1)
        if clock.needs_synchronised_marks:
            synchronise(device)
        end = clock.mark()
        synchronise(device)
        times.append(clock.seconds(start, end))
    return times[3:]


def synchronisation_ratio(device: torch.device) -> float:
    """Checks this device's timer: time of a product twice as large over time of the product, about 2."""
    return check_synchronised(products(device), lambda: synchronise(device), clock_of(device))
