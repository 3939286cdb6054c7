"""Measures what the operators of a training step cost one by one: what the measuring process of a calibration runs.

Short measurements over sizes (`operator_sizes`), in each precision, of the operators that `operator_work` lists. Each
runs as a training step runs it: through autograd, under autocast, into memory asked for each time, on random data;
forward and backward apart. On CUDA the device is put to sleep while the host queues the calls, so that the device is
timed without waiting for the host.

What a step costs beyond its operators is read off steps of tiny models, see `small_steps`.
"""

import operator
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from workflow_scripts.lib.device_timing import clock_of, synchronise
from workflow_scripts.lib.operator_calls import Call, build
from workflow_scripts.lib.operator_sizes import ALWAYS_FP32, sizes
from workflow_scripts.lib.outcome import Unavailable, is_out_of_memory, one_line
from workflow_scripts.lib.precision import autocast, set_precision
from workflow_scripts.lib.process_memory import given_pages, touch_memory
from workflow_scripts.lib.small_steps import MODELS, STEP_POINTS, measure_steps
from workflow_scripts.lib.specs import DeviceSpec, DeviceType, Precision, from_json

LEAST_CALLS = 3  # of which the median counts: what disturbs a call disturbs it in a step, too
SMALL_CALLS = 0.5  # share of the time that would do if no call took longer than its point's time
LONG, LONGEST = 4.0, 16.0  # of a point's time: a call that is timed once; one beyond which larger sizes are left out
CORNERS = 3.0  # times as long may the corners of all kinds take
CALL_S = 0.1  # for which an empty backward pass is repeated
QUEUED = 8  # calls that CUDA's queue holds easily, at up to some dozen kernels each
QUEUED_S = 4e-3  # of calls that take long fewer are queued
ALIKE = 0.01  # on CUDA, the fastest two samples differ by no more: then their like was measured often enough
HEAP_BYTES = 2**31  # of a processor's memory, taken before anything is timed: more than operators need
# How often all is timed, of which the faster counts: what disturbs a processor comes in bursts of seconds.
ROUNDS: dict[DeviceType, int] = {"cpu": 2, "cuda": 1, "mps": 1}
FEW_PAGES, RETRIES = 16, 8  # given to a call that counts all the same; how often one given more is called again
CYCLES_PER_S = 2e9  # of a GPU's clock, roughly: how long it sleeps is checked, not trusted

Send = Callable[[dict[str, Any]], None]


def measure_operators(arguments: dict[str, Any], send: Send, read: Callable[[], float] = time.perf_counter) -> dict:
    """Measures the operators on a device.

    Args:
        arguments: `device` (a `DeviceSpec` as JSON), `precisions`, `budget_s` (of each). Of fp32, if it is not among
            them, only what works on float32 in every precision is measured.
        send: takes `{"partial": result so far}`.
        read: the host's clock.

    Returns:
        `operators`: for each kind, precision, direction and size (`dims`, see `operator_work.Operator`) the `seconds`
        of one call, on CUDA with `host_s`, what queueing it took; `n` calls. `small_steps`: see `measure_steps`.
        `unavailable`: precision and reason.
    """
    spec = from_json(DeviceSpec, arguments["device"])
    torch.set_num_threads(spec.threads)
    device = torch.device(spec.torch_name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    elif device.type == "cpu":
        touch_memory(HEAP_BYTES)
    asked = set(arguments["precisions"])
    call_s = backward_call_s(device, read)
    result: dict[str, Any] = {"operators": [], "small_steps": [], "unavailable": []}
    for precision in sorted(asked | {"fp32"}, key=lambda name: (name != "fp32", name)):
        points, of_steps = sizes(spec.type, precision), 2 * STEP_POINTS[spec.type] * len(MODELS)
        each_s = SMALL_CALLS * arguments["budget_s"] / (2 * len(points) + of_steps)
        for_s = arguments["budget_s"] - of_steps * each_s
        try:
            set_precision(precision, device)
            if precision in asked:
                result["small_steps"] += measure_steps(precision, spec, STEP_POINTS[spec.type] * each_s, read)
            else:
                points = [point for point in points if point[1] in ALWAYS_FP32]
        except Unavailable as error:
            result["unavailable"].append({"precision": precision, "reason": one_line(str(error))})
            continue
        found = _measure_precision(precision, points, device, each_s, for_s, read)
        call_s = min(call_s, backward_call_s(device, read))
        result["operators"] += [without_call(one, call_s) for one in found]
        send({"partial": result})
    set_precision("fp32", device)
    return result


class Fastest:
    """Rows of measurements, of each the one with the fewest `seconds`."""

    def __init__(self) -> None:
        self._rows: dict[Any, dict[str, Any]] = {}

    def add(self, of: Any, row: dict[str, Any]) -> None:
        if of not in self._rows or row["seconds"] < self._rows[of]["seconds"]:
            self._rows[of] = row

    def rows(self) -> list[dict[str, Any]]:
        return list(self._rows.values())


def _measure_precision(
    precision: Precision, points: list, device: torch.device, each_s: float, for_s: float, read: Callable[[], float]
) -> list[dict[str, Any]]:
    """Measures sizes in order until samples have taken some time, but none beyond one that took too long.

    What comes before a size's samples does not count: its kernels are loaded then, and cuDNN plans attention anew for
    each size, which on an H200 in 16 bits had left no time for the largest. Corners may take `CORNERS` times as long:
    without them rates would be guessed.
    """
    found, seen, too_long, sampled_s = Fastest(), set(), [], 0.0
    rounds = ROUNDS[device.type]
    for index, (inside, kind, dims) in enumerate(points * rounds):
        again = index >= len(points)
        first = all(other != kind for other, _ in seen)
        beyond = any(kind == other and all(map(operator.ge, dims, limit)) for other, limit in too_long)
        late = sampled_s > for_s * (1 if inside or again else CORNERS)
        if (again and (kind, dims) not in seen) or (beyond and not again) or (late and not first):
            continue
        try:
            with autocast(precision, device):
                torch.set_autocast_cache_enabled(False)  # a step casts each weight anew
                forward, backward = build(kind, dims, device)
                timed = {} if forward is None else {"forward": time_call(forward, device, each_s / rounds, read)}
            if backward is not None:
                timed["backward"] = time_call(backward, device, each_s / rounds, read)
        except RuntimeError as error:  # an operator that this device lacks in this precision, or no memory for it
            if not is_out_of_memory(error) and not first:
                raise
            too_long.append((kind, dims))
            continue
        sampled_s += sum(times.pop("sampled_s") for times in timed.values())
        seen.add((kind, dims))
        asked = {"kind": kind, "precision": precision, "dims": list(dims)}
        for direction, times in timed.items():
            found.add((kind, dims, direction), {**asked, "direction": direction, **times})
        if max(times["seconds"] for times in timed.values()) > LONGEST * each_s:
            too_long.append((kind, dims))
    return found.rows()


def backward_call_s(device: torch.device, read: Callable[[], float]) -> float:
    """What a backward pass costs the host, however little is in it: a step pays it once, a measurement each time."""
    leaf = torch.randn(16, device=device, requires_grad=True)
    view, outer = leaf.view(4, 4), torch.randn(4, 4, device=device)
    times = time_call(lambda: torch.autograd.grad(view, leaf, outer, retain_graph=True), device, CALL_S, read)
    return times["seconds"] if times["host_s"] is None else times["host_s"]


def without_call(measured: dict[str, Any], call_s: float) -> dict[str, Any]:
    """Takes the call itself off the host's time of a backward pass, of which at least a tenth is the operator's."""
    name = "seconds" if measured["host_s"] is None else "host_s"
    if measured["direction"] == "forward":
        return measured
    return {**measured, name: max(measured[name] - call_s, measured[name] / 10)}


def time_call(call: Call, device: torch.device, for_s: float, read: Callable[[], float]) -> dict[str, Any]:
    """Times one call after a first one: `seconds` on the device, `host_s` to queue it (CUDA), `n` samples.

    `sampled_s` is what all of them took.
    """
    call()
    synchronise(device)
    take = _queue(call, device, read) if device.type == "cuda" else _await(call, device, read)
    times, started = [], read()
    while len(times) < LEAST_CALLS or (read() - started < for_s and not _alike(times)):
        times.append(take())
        if len(times) == 1 and times[0][0] > LONG * for_s:
            break
    units = getattr(call, "calls", 1)
    seconds = median(one[0] for one in times) / units
    host = [one[1] for one in times if one[1] is not None]
    host_s = median(host) / units if host else None
    return {"seconds": seconds, "host_s": host_s, "n": len(times), "sampled_s": read() - started}


def _alike(times: list[tuple[float, float | None]]) -> bool:
    """Whether a device's own clock said the same twice; a host's is not trusted to tell."""
    if times[0][1] is None:
        return False
    fastest, second = sorted(one[0] for one in times)[:2]
    return second <= (1 + ALIKE) * fastest


def _await(call: Call, device: torch.device, read: Callable[[], float]) -> Callable[[], tuple[float, None]]:
    """Gives what times a call until the device has done it, of those for which the process had its memory."""
    left = RETRIES

    def take() -> tuple[float, None]:
        nonlocal left
        while True:
            pages, start = given_pages(), read()
            call()
            synchronise(device)
            seconds = read() - start
            if left == 0 or given_pages() - pages <= FEW_PAGES:
                return seconds, None
            left -= 1

    return take


def _queue(call: Call, device: torch.device, read: Callable[[], float]) -> Callable[[], tuple[float, float]]:
    """Gives what times some calls queued behind a device that sleeps: longer if it woke up before all were queued."""
    clock, started = clock_of(device), read()
    call()
    queued_s = read() - started
    synchronise(device)
    n = max(1, min(QUEUED, round(QUEUED_S / (read() - started))))
    sleep_s = 1.5 * n * queued_s + 2e-4

    def take() -> tuple[float, float]:
        nonlocal sleep_s
        while True:
            synchronise(device)
            torch.cuda._sleep(int(sleep_s * CYCLES_PER_S))
            start = clock.mark()
            host_start = read()
            for _ in range(n):
                call()
            host_s = read() - host_start
            awake = start.query()  # the device has passed the mark: it may have waited for the host
            end = clock.mark()
            synchronise(device)
            if not awake or sleep_s > 0.1:
                return clock.seconds(start, end) / n, host_s / n
            sleep_s *= 2

    return take
