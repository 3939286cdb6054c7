"""Measures what the operators of a training step cost one by one: what the measuring process of a calibration runs.

Short measurements over sizes, in each precision, of the operators that `operator_work` lists. Each runs as a training
step runs it: through autograd, under autocast, into memory newly asked for, on random data; forward and backward apart.

On CUDA the device is put to sleep while the host queues the calls, so that one measurement tells both times apart: what
the host takes to queue a call, and what the device takes for it when it need not wait for the host.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from workflow_scripts.lib.device_timing import clock_of, synchronise
from workflow_scripts.lib.operator_calls import Call, build
from workflow_scripts.lib.outcome import Unavailable, is_out_of_memory, one_line
from workflow_scripts.lib.precision import autocast, set_precision
from workflow_scripts.lib.specs import DeviceSpec, Precision, from_json

LEAST_CALLS = 3  # of which the fastest quarter's slowest counts: what disturbs a call can only lengthen it
LONGEST = 8.0  # shares of a point's time that one call may take before larger sizes of its kind are left out
CALL_S = 0.1  # for which an empty backward pass is repeated
# A small decoder of one and of more blocks: what a block takes beyond its operators alone is the price of launching
# them where caches hold something else. Layers, width, heads, context, vocabulary; one sequence.
DECODERS = tuple((n_layer, 32, 4, 64, 64) for n_layer in (1, 3))
QUEUED = 8  # calls that CUDA's queue holds easily, at up to some dozen kernels each
CYCLES_PER_S = 2e9  # of a GPU's clock, roughly: how long it sleeps is checked, not trusted
WIDTHS = {"cpu": (32, 128, 512), "cuda": (128, 512, 2048), "mps": (64, 256, 1024)}
HEADS = {  # rows, inputs, outputs of products whose result is large: of a vocabulary
    "cpu": ((64, 64, 16384), (512, 32, 16384), (512, 256, 16384), (2048, 32, 16384)),
    "cuda": ((512, 1024, 50304), (4096, 512, 50304), (16384, 256, 50304)),
    "mps": ((128, 256, 50304), (2048, 256, 50304)),
}
ROWS = {"cpu": (64, 512, 4096), "cuda": (512, 4096, 32768), "mps": (128, 1024, 8192)}
OUTPUTS = {"cpu": (32, 128, 512, 2048), "cuda": (128, 512, 2048, 8192), "mps": (64, 256, 1024, 4096)}
VOCABULARIES = {"cpu": (64, 1024, 16384), "cuda": (256, 4096, 50304), "mps": (256, 4096, 50304)}
SEQUENCES = ((1, 4), (16, 4))
LENGTHS = {"cpu": (32, 128, 512), "cuda": (128, 512, 2048), "mps": (64, 256, 1024)}
HEAD_SIZES = {"cpu": (8, 32, 64), "cuda": (32, 64, 128), "mps": (32, 64, 128)}
LOSS_ROWS = {"cpu": (64, 512, 2048), "cuda": (512, 4096, 16384), "mps": (128, 1024, 4096)}
LARGEST = {"cpu": 2**25, "cuda": 2**30, "mps": 2**27}  # elements of one operator's output
PARAMETERS = {"cpu": (2**8, 2**14, 2**18, 2**21), "cuda": (2**10, 2**16, 2**20, 2**24), "mps": (2**10, 2**16, 2**21)}

Send = Callable[[dict[str, Any]], None]


def measure_operators(arguments: dict[str, Any], send: Send, read: Callable[[], float] = time.perf_counter) -> dict:
    """Measures the operators on a device.

    Args:
        arguments: `device` (a `DeviceSpec` as JSON), `precisions`, `budget_s` (in all).
        send: takes `{"partial": result so far}`.
        read: the host's clock.

    Returns:
        `operators`: for each kind, precision, direction and size (`dims`, see `operator_work.Operator`) the `seconds`
        of one call, on CUDA with `host_s`, what queueing it took; `n` calls; `unavailable`: precision and reason.
    """
    spec = from_json(DeviceSpec, arguments["device"])
    torch.set_num_threads(spec.threads)
    device = torch.device(spec.torch_name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    precisions = sorted(set(arguments["precisions"]) | {"fp32"}, key=lambda name: (name != "fp32", name))
    points = list(sizes(device.type))
    call_s = backward_call_s(device, read)
    each_s = arguments["budget_s"] / (2 * len(points) * len(precisions))
    result: dict[str, Any] = {"operators": [], "unavailable": []}
    for precision in precisions:
        end = read() + arguments["budget_s"] / len(precisions)
        try:
            set_precision(precision, device)
        except Unavailable as error:
            result["unavailable"].append({"precision": precision, "reason": one_line(str(error))})
            continue
        found = _measure_precision(precision, points, device, each_s, end, read)
        result["operators"] += [without_call(one, call_s) for one in found]
        send({"partial": result})
    set_precision("fp32", device)
    return result


def _measure_precision(
    precision: Precision, points: list, device: torch.device, each_s: float, end: float, read: Callable[[], float]
) -> list[dict[str, Any]]:
    """Measures all sizes, small ones first; a kind stops where its calls get too long, and everything at the end."""
    found, stopped = [], set()
    for kind, dims in points:
        if kind in stopped or (read() > end and any(one["kind"] == kind for one in found)):
            continue
        try:
            with autocast(precision, device):
                torch.set_autocast_cache_enabled(False)  # a step casts each weight anew
                forward, backward = build(kind, dims, device)
                timed = {"forward": time_call(forward, device, each_s, read)}
            if backward is not None:
                timed["backward"] = time_call(backward, device, each_s, read)
        except RuntimeError as error:  # an operator that this device lacks in this precision, or no memory for it
            if not is_out_of_memory(error) and any(one["kind"] == kind for one in found):
                raise
            stopped.add(kind)
            continue
        asked = {"kind": kind, "precision": precision, "dims": list(dims)}
        found += [{**asked, "direction": direction, **times} for direction, times in timed.items()]
        if max(times["seconds"] for times in timed.values()) > LONGEST * each_s:
            stopped.add(kind)
    return found


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


def sizes(kind: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Gives what is measured on a type of device, in ascending size within each kind of operator."""
    rows, widths, largest = ROWS[kind], WIDTHS[kind], LARGEST[kind]
    points: list[tuple[str, tuple[int, ...]]] = []
    points += [("linear", (m, k, n)) for m in rows for k in widths for n in OUTPUTS[kind]]
    points += [("linear", dims) for dims in HEADS[kind]]
    points += [("attention", (*bh, t, d)) for bh in SEQUENCES for t in LENGTHS[kind] for d in HEAD_SIZES[kind]]
    points += [("rotary", (*bh, t, HEAD_SIZES[kind][1])) for bh in SEQUENCES for t in LENGTHS[kind]]
    flat = [(m, d) for m in rows for d in (widths[0], widths[-1])]
    points += [(name, dims) for name in ("layer_norm", "rms_norm", "residual") for dims in flat]
    points += [(name, (m, 4 * d)) for name in ("gelu", "swiglu") for m, d in flat]
    points += [("loss", (m, v)) for m in LOSS_ROWS[kind] for v in VOCABULARIES[kind]]
    points += [("embedding", (m, v, widths[1])) for m in LOSS_ROWS[kind] for v in VOCABULARIES[kind]]
    points += [("optimizer", (size,)) for size in PARAMETERS[kind]]
    points += [("decoder", dims) for dims in DECODERS]
    order = {name: place for place, name in enumerate(dict.fromkeys(name for name, _ in points))}
    kept = [(name, dims) for name, dims in points if _elements(name, dims) <= largest]
    return iter(sorted(kept, key=lambda point: (_work(*point), order[point[0]])))


def _elements(name: str, dims: tuple[int, ...]) -> int:
    if name in ("linear", "embedding"):
        return dims[0] * dims[2] + dims[1] * dims[2]
    return math.prod(dims)


def _work(name: str, dims: tuple[int, ...]) -> int:
    """FLOPs, roughly: what orders the sizes, so that a device runs out of time at large ones."""
    return (
        math.prod(dims) * dims[2]
        if name == "attention"
        else math.prod(dims)
        if name == "linear"
        else 64 * _elements(name, dims)
    )


def time_call(call: Call, device: torch.device, for_s: float, read: Callable[[], float]) -> dict[str, Any]:
    """Times one call after a first one: `seconds` on the device, `host_s` to queue it (CUDA), `n` calls timed."""
    call()
    synchronise(device)
    timer = _time_queued if device.type == "cuda" else _time_awaited
    units = getattr(call, "calls", 1)
    times, started = [], read()
    while len(times) < LEAST_CALLS or read() - started < for_s:
        times.append(timer(call, device, read))
        if len(times) == 1 and times[0][0] > LONGEST * for_s:
            break
    seconds = sorted(one[0] for one in times)[len(times) // 4] / units
    host = [one[1] for one in times if one[1] is not None]
    host_s = sorted(host)[len(host) // 4] / units if host else None
    return {"seconds": seconds, "host_s": host_s, "n": len(times)}


def _time_awaited(call: Call, device: torch.device, read: Callable[[], float]) -> tuple[float, None]:
    start = read()
    call()
    synchronise(device)
    return read() - start, None


def _time_queued(call: Call, device: torch.device, read: Callable[[], float]) -> tuple[float, float]:
    """Queues calls behind a device that sleeps; sleeps longer if it woke up before all were queued."""
    clock, sleep_s, n = clock_of(device), 1e-3, getattr(call, "queued", QUEUED)
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
        sleep_s *= 4
