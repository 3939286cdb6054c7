"""Measures what a device can do at best, and whether its clock can be believed: what the measuring process runs.

- **Ceilings.** Matrix products in each precision, sustained, since a device that heats up slows down; copies between
  buffers that no cache holds. Achieved rates are compared with these.
- **Overheads.** What one small operator costs the host, alone and with its backward pass; on CUDA what one launch
  costs, and how close kernels follow each other inside a graph.
- **Synchronisation**, first of all: see `self_check`.

All data is random: a GPU draws less power on zeros, and so runs them faster (Horace He, "Strangely, matrix
multiplications on GPUs run faster when given predictable data", 2024).
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from workflow_scripts.lib.device_timing import ANCHOR_SIZES, clock_of, synchronise
from workflow_scripts.lib.machine_state import between, snapshot
from workflow_scripts.lib.outcome import Unavailable, is_out_of_memory, one_line
from workflow_scripts.lib.precision import AUTOCAST, set_precision
from workflow_scripts.lib.self_check import FACTORS, check_clocks
from workflow_scripts.lib.specs import DeviceSpec, MeasureSpec, Precision, from_json
from workflow_scripts.lib.timing import Clock, HostClock, Samples, median_interval, sample_steps

# Sides of square products, tried upwards while one takes less than a SAMPLES_PER_SUSTAIN-th of the time. On a CPU 256
# already reaches some 95 % of a core's rate; a GPU needs thousands to fill all its processors.
SIDES = {"cpu": (256, 512, 1024, 2048, 4096), "cuda": (1024, 2048, 4096, 8192), "mps": (512, 1024, 2048, 4096)}
LAYOUTS = ("nt", "nn", "tn")  # of x Wᵀ, g W and gᵀ x: a CPU did one of them 13 times as fast as another in bf16
SAMPLES_PER_SUSTAIN, PROBES = 20, 3
LEAST_SAMPLES = 12  # at most half of them are cold, and six warm ones have an interval
TRIES = 3  # each twice as long as the one before, should a disturbed machine leave fewer samples
# Each of two buffers, in bytes: several times the caches (H100: 50 MiB of L2; CPUs: up to 12 MiB of L3 a core).
COPY_BYTES = {"cuda": 2**30, "mps": 256 * 2**20}
COPY_BYTES_PER_THREAD, LEAST_COPY_BYTES = 32 * 2**20, 64 * 2**20
OPERATORS, LAUNCHES = 1000, 100  # in one sample of an overhead, so that synchronising at its end does not count
SLOW, SHORT = 0.25, 0.2  # a precision below this share of fp32's rate is sustained for this share of the time

Send = Callable[[dict[str, Any]], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """Something to repeat: `run` does `amount` of it, of which the rate (`FLOP/s`, `bytes/s`) or time (`s`) is told."""

    quantity: str
    precision: str | None
    unit: str
    amount: float
    run: Callable[[], None]
    clock: Clock
    conditions: dict[str, Any]


def measure_ceilings(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Calibrates a device.

    Args:
        arguments: `device` (a `DeviceSpec` as JSON), `precisions` (those of products), `sustain_s` (how long each
            product is repeated; the rest gets a fifth of it).
        send: takes `{"partial": result so far}` and `{"notice": a line for the terminal}`.

    Returns:
        `synchronisation` (see `self_check.check_clocks`) and `ceilings`, a dict for each quantity: see `summarise`.
    """
    spec = from_json(DeviceSpec, arguments["device"])
    sustain_s = arguments["sustain_s"]
    torch.set_num_threads(spec.threads)
    device = torch.device(spec.torch_name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    set_precision("fp32", device)
    clocks = ({"event": clock_of(device)} if device.type == "cuda" else {}) | {"host": HostClock()}
    synchronisation = check_clocks(products(device), lambda: synchronise(device), clocks)
    result: dict[str, Any] = {"synchronisation": synchronisation, "ceilings": []}
    send({"partial": result})

    def add(measured: dict[str, Any]) -> None:
        result["ceilings"].append(measured)
        send({"partial": result})

    rates: dict[str, float] = {}
    for precision in sorted(set(arguments["precisions"]) | {"fp32"}, key=lambda name: (name != "fp32", name)):
        add(measure_product(precision, spec, device, sustain_s, rates))
        if notice := slowness(precision, rates):
            send({"notice": notice})
    set_precision("fp32", device)
    for work in other_work(device, spec.threads):
        add({**measure(work, spec, device, SHORT * sustain_s), "ratio_to_fp32": None})
    return result


def products(device: torch.device) -> Callable[[int], None]:
    """Gives the work of the self-check: one fp32 product of a number of rows in proportion to the argument."""
    side = ANCHOR_SIZES[device.type]
    rows = side // FACTORS[1]
    left = torch.randn(2 * FACTORS[-1] * rows, side, device=device)
    right = torch.randn(side, side, device=device)
    out = torch.empty_like(left)
    return lambda scale: torch.mm(left[: scale * rows], right, out=out[: scale * rows])


def measure_product(
    precision: Precision, spec: DeviceSpec, device: torch.device, sustain_s: float, rates: dict[str, float]
) -> dict[str, Any]:
    """Measures products of one precision, sized by short probes; leaves its best rate in FLOP/s in `rates`."""
    try:
        set_precision(precision, device)
        work, probed = largest_product(precision, device, sustain_s / SAMPLES_PER_SUSTAIN)
    except (Unavailable, RuntimeError) as error:  # torch refuses a dtype that a device lacks with a RuntimeError
        if is_out_of_memory(error):
            raise
        asked = {"quantity": "matrix_product", "precision": precision, "unit": "FLOP/s"}
        return {**asked, "value": None, "n": 0, "reason": one_line(str(error)), "ratio_to_fp32": None}
    slow = precision != "fp32" and probed < SLOW * rates["fp32"]
    measured = measure(work, spec, device, SHORT * sustain_s if slow else sustain_s)
    rates[precision] = max(probed, measured["best"] or 0.0)
    return {**measured, "ratio_to_fp32": rates[precision] / rates["fp32"]}


def largest_product(precision: Precision, device: torch.device, longest_s: float) -> tuple[Work, float]:
    """Finds the largest product that takes at most `longest_s`, or the smallest, and the best rate of all tried."""
    chosen, best = None, 0.0
    for side in SIDES[device.type]:
        works = [product(precision, device, side, layout) for layout in LAYOUTS]
        timed = {probe(work, device, enough_s=4 * longest_s): work for work in works}
        seconds, work = min(timed), timed[min(timed)]
        best = max(best, work.amount / seconds)
        if chosen is None or seconds <= longest_s:
            chosen = work
        if seconds > longest_s:
            break
    return chosen, best


def product(precision: Precision, device: torch.device, side: int, layout: str = "nn") -> Work:
    """A product of two square random matrices into a third, each plain (n) or transposed (t): 2 n³ FLOPs."""
    dtype = AUTOCAST.get(precision, torch.float32)
    drawn = [torch.randn(side, side, device=device).to(dtype) for _ in layout]
    left, right = (matrix.t() if way == "t" else matrix for matrix, way in zip(drawn, layout, strict=True))
    out = torch.empty_like(drawn[0])
    return Work(
        quantity="matrix_product",
        precision=precision,
        unit="FLOP/s",
        amount=2.0 * side**3,
        run=lambda: torch.mm(left, right, out=out),
        clock=clock_of(device),
        conditions={"side": side, "layout": layout, "dtype": str(dtype).removeprefix("torch."), "data": "normal"},
    )


def probe(work: Work, device: torch.device, enough_s: float = math.inf) -> float:
    """Fastest time in s of a few repetitions after a first one, which alone counts if it takes `enough_s`."""
    times: list[float] = []
    while len(times) <= PROBES and (not times or times[0] < enough_s):
        synchronise(device)
        start = work.clock.mark()
        work.run()
        if work.clock.needs_synchronised_marks:
            synchronise(device)
        end = work.clock.mark()
        synchronise(device)
        times.append(work.clock.seconds(start, end))
    return max(min(times[1:] or times), work.clock.resolution_s)


def slowness(precision: str, rates: dict[str, float]) -> str | None:
    """A line on how fast a precision's products are beside fp32's, None for fp32 itself and for what did not run."""
    if precision == "fp32" or precision not in rates:
        return None
    ratio = rates[precision] / rates["fp32"]
    line = f"products in {precision} run at {ratio:.2g} times the rate of fp32"
    if ratio < SLOW:
        return f"{line}: many times slower ({1 / ratio:.0f} times), and so will its cells be"
    return f"{line}: slower" if ratio < 1.0 else line


def other_work(device: torch.device, threads: int) -> Iterator[Work]:
    """Copies and overheads, one after the other so that memory is held for one at a time."""
    yield copies(device, threads)
    x = torch.randn(16, device=device)
    host = {"unit": "s", "precision": None, "clock": HostClock(), "conditions": {"elements": 16}}

    def operators() -> None:
        for _ in range(OPERATORS):
            torch.add(x, x)

    yield Work(quantity="operator", amount=OPERATORS, run=operators, **host)
    leaf = torch.randn(16, device=device, requires_grad=True)

    def pairs() -> None:
        y = leaf
        for _ in range(OPERATORS):
            y = torch.mul(y, x)
        leaf.grad = None
        y.sum().backward()

    yield Work(quantity="operator_and_backward", amount=OPERATORS, run=pairs, **host)
    if device.type == "cuda":
        launch, row = captured(x, 1), captured(x, OPERATORS)

        def replays() -> None:
            for _ in range(LAUNCHES):
                launch.replay()

        yield Work(quantity="kernel_launch", amount=LAUNCHES, run=replays, **host)
        yield Work(quantity="kernel_in_graph", amount=OPERATORS, run=row.replay, **host)


def copies(device: torch.device, threads: int) -> Work:
    """Copies out of cache; every byte is read once and written once."""
    n_bytes = COPY_BYTES.get(device.type, max(LEAST_COPY_BYTES, threads * COPY_BYTES_PER_THREAD))
    if device.type == "cuda":
        n_bytes = min(n_bytes, torch.cuda.mem_get_info(device)[0] // 8)
    block = torch.randn(2**18, device=device)
    source = block.repeat(max(1, n_bytes // (4 * 2**18)))
    target = torch.zeros_like(source)  # touched: a first write would pay for page faults
    return Work(
        quantity="copy",
        precision=None,
        unit="bytes/s",
        amount=2.0 * 4 * source.numel(),
        run=lambda: target.copy_(source),
        clock=clock_of(device),
        conditions={"buffer_bytes": 4 * source.numel(), "data": "normal", "counted": "read and written"},
    )


def captured(x: torch.Tensor, n: int) -> torch.cuda.CUDAGraph:
    """A CUDA graph of n small kernels in a row."""
    x.mul_(-1.0)  # loads the kernel, which a capture must not
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(n):
            x.mul_(-1.0)
    return graph


def measure(work: Work, spec: DeviceSpec, device: torch.device, for_s: float) -> dict[str, Any]:
    """Repeats work for a time and summarises it, with what the machine was like meanwhile."""
    for_s = max(for_s, LEAST_SAMPLES * probe(work, device))
    for attempt in range(TRIES):
        for_s = 2 * for_s if attempt else for_s
        until = MeasureSpec(min_samples=5, target_interval=-1.0, max_seconds=for_s, timeout_s=math.inf)  # time is up
        before = snapshot(spec)
        samples = sample_steps(work.run, lambda: synchronise(device), clock=work.clock, measure=until)
        after = snapshot(spec)
        if median_interval(samples.samples_s):
            break
    state = after["gpu"] or after["host"]
    kept = ("sm_clock_hz", "power_w", "throttle_reasons", "cpu_frequency_hz", "temperature_c", "load_1min")
    conditions = {
        **work.conditions,
        "threads": spec.threads,
        "sustained_s": for_s,
        "others_cores": between(before, after)["others_cores"],
        "state": {name: state[name] for name in kept if name in state},
    }
    asked = {"quantity": work.quantity, "precision": work.precision, "unit": work.unit}
    return {**asked, **summarise(samples, work.amount, work.unit), "conditions": conditions}


def summarise(samples: Samples, amount: float, unit: str) -> dict[str, Any]:
    """Turns times into the quantity.

    Returns:
        `value` (by the median of the warm samples; None without any), `low` and `high` (its 95 % interval, None below
        six samples), `best` (by the fastest sample: what no work should exceed), `first_third` and `last_third` (by the
        medians of those: how well it is sustained), `n`, `samples_s` (warm, in order, s for `amount`), `amount`.
    """
    times = samples.samples_s
    interval = median_interval(times)
    third = -(-len(times) // 3)

    def of(seconds: float | None) -> float | None:
        if not seconds:  # no samples, or none that the clock could see
            return None
        return seconds / amount if unit == "s" else amount / seconds

    ends = [of(end) for end in interval] if interval else [None, None]
    low, high = ends if unit == "s" else ends[::-1]
    return {
        "value": of(_median(times)),
        "low": low,
        "high": high,
        "best": of(min(times, default=None)),
        "first_third": of(_median(times[:third])),
        "last_third": of(_median(times[len(times) - third :])),
        "n": len(times),
        "samples_s": times,
        "amount": amount,
    }


def _median(times: Sequence[float]) -> float | None:
    ordered, n = sorted(times), len(times)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2 if n else None
