"""One step under three clocks, over context lengths: the host's, the device's, and both together.

- **Host**: from the call of a step to its return, the device waited for before. On a GPU the host only enqueues.
- **Device**: the time in which at least one kernel runs, from a timeline of steps of their own: the profiler's, and
  beside it that of Nsight Systems where it is installed.
- **Wall**: from a synchronised start to a synchronised end.

Where the device is idle for much of the wall time while the host is busy, launching is what takes the time.
"""

import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from workflow_scripts.lib.cell import DRAWN_ON_DEVICE_ABOVE, part
from workflow_scripts.lib.corpus import load_tokens
from workflow_scripts.lib.counts import count_parameters
from workflow_scripts.lib.nsight import device_spans
from workflow_scripts.lib.outcome import classify
from workflow_scripts.lib.probe_specs import ClocksProbe, probe_from_json
from workflow_scripts.lib.specs import ModelShape, to_json
from workflow_scripts.lib.step import TrainStep

WARM_STEPS, NSIGHT_STEPS = 5, 3

Send = Callable[[dict[str, Any]], None]


def probe(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Times each mode at each context length.

    Returns:
        `timeline` (where the device's time is from, None where it has none of its own) and `rows`: `sequence_length`,
        `mode`, `status`, `reason`, and where measured `host_s` and `wall_s` (samples in order, s per step),
        `device_s` (s per step, kernels that overlap counted once) and `n_kernels` per step, `nsys_s` and
        `nsys_kernels`, the same by Nsight Systems (None without it), and `nsys`, what became of it.
    """
    spec = probe_from_json(arguments["probe"])
    assert isinstance(spec, ClocksProbe)
    timeline = "torch.profiler's kernels" if spec.device.type == "cuda" else None
    result: dict[str, Any] = {"timeline": timeline, "rows": []}
    for model in spec.models:
        for mode in spec.modes:
            try:
                found = {"status": "ok", "reason": "", **measure(spec, model, mode, arguments)}
            except Exception as error:  # a context that does not fit leaves the others alone
                status, reason = classify(error)
                found = {"status": status, "reason": reason}
            result["rows"].append({"sequence_length": model.sequence_length, "mode": mode, **found})
            send({"partial": result})
    return result


def measure(spec: ClocksProbe, model: ModelShape, mode: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Times one mode at one context length."""
    step, run = warm(spec, model, mode, arguments)
    host_s, wall_s = [], []
    for _ in range(spec.n_steps):
        start = time.perf_counter()
        run()
        host_s.append(time.perf_counter() - start)
        step.synchronise()
        wall_s.append(time.perf_counter() - start)
    on_cuda = step.device.type == "cuda"
    on_device = busy(run, step) if on_cuda else Busy(None, None)
    nsys, said = busy_by_nsight(spec, model, mode, arguments) if on_cuda else (Busy(None, None), None)
    return {
        "host_s": host_s,
        "wall_s": wall_s,
        "device_s": on_device.seconds,
        "n_kernels": on_device.kernels,
        "nsys_s": nsys.seconds,
        "nsys_kernels": nsys.kernels,
        "nsys": said,
    }


def warm(
    spec: ClocksProbe, model: ModelShape, mode: str, arguments: dict[str, Any]
) -> tuple[TrainStep, Callable[[], None]]:
    """Builds the step, and gives it with the part of it that the mode runs, run some times."""
    corpus = json.loads(Path(arguments["corpus"]).read_text(encoding="utf-8"))
    tokens = load_tokens(Path(arguments["tokens"]), corpus, "train")
    draw_on = "device" if count_parameters(model).total > DRAWN_ON_DEVICE_ABOVE else "cpu"
    step = TrainStep.build(model, spec.step, spec.optimizer, spec.device, tokens, spec.n_steps, 0, draw_on)
    run = part(step, mode)
    for _ in range(WARM_STEPS):
        run()
    step.synchronise()
    return step, run


@dataclasses.dataclass(frozen=True)
class Busy:
    """What a device did in a step: seconds in which something ran, and how many kernels."""

    seconds: float | None
    kernels: float | None


def busy(run: Callable[[], None], step: TrainStep, n_steps: int = 3) -> Busy:
    """Sees some steps through the profiler; the first of them is thrown away."""
    found = []
    for _ in range(n_steps + 1):
        with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            run()
            step.synchronise()
        spans = [
            (event.start_ns(), event.start_ns() + event.duration_ns())
            for event in profiler.profiler.kineto_results.events()
            if event.device_type().name == "CUDA" and not event.is_user_annotation()
        ]
        found.append((covered(spans) / 1e9, len(spans)))
    kept = found[1:]
    return Busy(statistics.median(seconds for seconds, _ in kept), statistics.median(n for _, n in kept))


def busy_by_nsight(spec: ClocksProbe, model: ModelShape, mode: str, arguments: dict[str, Any]) -> tuple[Busy, str]:
    """Sees some steps of another process through Nsight Systems; tells, too, whether it could."""
    asked = to_json(dataclasses.replace(spec, models=(model,), modes=(mode,)))
    spans, said = device_spans(__name__, json.dumps({**arguments, "probe": asked}), spec.timeout_s / 4)
    if not spans:
        return Busy(None, None), said
    return Busy(covered(spans) / 1e9 / NSIGHT_STEPS, len(spans) / NSIGHT_STEPS), said


def main() -> None:
    """Runs what Nsight Systems watches: some steps of the one mode and context of the arguments on standard input."""
    arguments = json.loads(sys.stdin.read())
    spec = probe_from_json(arguments["probe"])
    assert isinstance(spec, ClocksProbe)
    step, run = warm(spec, spec.models[0], spec.modes[0], arguments)
    torch.cuda.profiler.start()
    for _ in range(NSIGHT_STEPS):
        run()
    step.synchronise()
    torch.cuda.profiler.stop()


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of spans."""
    total, reached = 0.0, -float("inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


if __name__ == "__main__":
    main()
