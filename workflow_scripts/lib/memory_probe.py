"""Measures the memory of one training step: what measuring processes run, in which nothing is timed.

**Allocated** is what live tensors take: on a CPU the events of torch's profiler, added up from before the model is
built; on CUDA the allocator's counters; on MPS samples of the amount of the moment. All of one steady step: optimizer
state appears with the first update, and gradients of the step before are there from the second one on. On CUDA the
peak of a compiled step is that of the steps before where it is larger.

**Footprint** is by how much the whole process grows, seen by the kernel. A C library keeps freed blocks for later,
which says more of its habits than of the step, so the process of this probe gives large blocks back at once
(`TIGHT_MALLOC`). That makes steps slower: one more reason for a process of its own.
"""

import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function

from workflow_scripts.lib.cell import build_step
from workflow_scripts.lib.memory import from_driver
from workflow_scripts.lib.memory_phases import PHASES, PeakCounter, PeakSampler, announce_phases, peaks_of
from workflow_scripts.lib.process_memory import peak_process_bytes, reset_peak_process_bytes, resident_bytes
from workflow_scripts.lib.specs import MemorySpec, from_json
from workflow_scripts.lib.step import TrainStep

WARM_STEPS, MOST_WARM_STEPS = 2, 20  # before the steady one; at most, where fp16 skips the first updates
MARK = "phase of memory: "
BEFORE, AFTER = "before the step", "after the step"
SAMPLE_EVERY_S = 0.0005

Send = Callable[[dict[str, Any]], None]


def probe_allocated(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Measures what tensors take on the device during one steady step.

    Args:
        arguments: `memory` (a `MemorySpec` as JSON), `tokens` and `corpus` (paths).
        send: takes messages; none is sent.

    Returns:
        In bytes: `peak_allocated_bytes`; `phases`, the peak within each of `PHASES` (None where a captured step hides
        them); `data_bytes`, the part of all these that holds tokens and windows; and where the device tells them
        `peak_reserved_bytes`, `process_device_bytes` and `device_used_bytes`, else None. `method`; `n_steps_before`;
        `observed`, what the step really did.
    """
    spec = from_json(MemorySpec, arguments["memory"])
    device = torch.device(spec.device.torch_name)
    probe = {"cpu": trace_on_cpu, "cuda": count_on_cuda, "mps": sample_on_mps}[device.type]
    step, found = probe(lambda: build_step(spec, arguments), device)
    phases = {phase: found["phases"].get(phase) for phase in PHASES} if found["phases"] else None
    return {
        "peak_reserved_bytes": None,
        "process_device_bytes": None,
        "device_used_bytes": None,
        **found,
        "phases": phases,
        "data_bytes": step.batches.allocated_bytes(),
        "n_steps_before": step.steps_done - 1,
        "observed": step.observed(),
    }


def make_steady(step: TrainStep, run: Callable[[], None]) -> None:
    """Runs a step, or a part of it, until all is there that stays: with fp16 the first updates may be left out."""
    for _ in range(WARM_STEPS):
        run()
    while 0 < step.skipped_steps == step.steps_done < MOST_WARM_STEPS:
        run()


def trace_on_cpu(make: Callable[[], TrainStep], device: torch.device) -> tuple[TrainStep, dict[str, Any]]:
    """Adds up all allocations of torch's CPU allocator, from before the first tensor of the step."""

    def enter(phase: str) -> None:
        with record_function(MARK + phase):
            pass

    gc.collect()  # what an earlier trace saw allocated would be seen freed in this one
    with torch.profiler.profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step = make()
        announce_phases(step, enter)
        make_steady(step, step.run)
        enter(BEFORE)  # renames what follows until the first loss, where old gradients are still there
        enter("forward")
        step.run()
        enter(AFTER)
    peaks = peaks_of(since_the_last(allocations(profiler), MARK + BEFORE))
    held = sum(parameter.nbytes for parameter in step.parameters) + step.optimizer.state_bytes()
    if peaks[MARK + BEFORE] < held:
        raise RuntimeError(
            f"the trace has {peaks[MARK + BEFORE]} bytes allocated where {held} are held: it is not whole"
        )
    phases = {phase: peaks[MARK + phase] for phase in PHASES}
    method = "torch.profiler's memory events of the CPU allocator over one step"
    return step, {"peak_allocated_bytes": max(phases.values()), "phases": phases, "method": method}


def allocations(profiler: torch.profiler.profile) -> list[str | int]:
    """Bytes allocated (freed: negative) and our marks, in the order of time."""
    events = profiler.profiler.kineto_results.events()
    kept = [e for e in events if e.name() == "[memory]" or e.name().startswith(MARK)]
    return [
        e.nbytes() if e.name() == "[memory]" else e.name() for e in sorted(kept, key=lambda event: event.start_ns())
    ]


def since_the_last(events: list[str | int], mark: str) -> list[str | int]:
    """Events from a mark on, after the sum of all before it."""
    start = len(events) - 1 - events[::-1].index(mark)
    return [mark, sum(event for event in events[:start] if isinstance(event, int)), *events[start + 1 :]]


def count_on_cuda(make: Callable[[], TrainStep], device: torch.device) -> tuple[TrainStep, dict[str, Any]]:
    """Reads the counters of CUDA's caching allocator, and the driver's for process and device."""
    step = make()
    make_steady(step, step.run)
    before, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
    if step.captured is not None:
        # A graph's memory is taken while it is captured and kept: replays take none.
        allocated, phases, over = before, {}, "up to the captured step"
    else:
        counter = PeakCounter(
            lambda: torch.cuda.max_memory_allocated(device), lambda: torch.cuda.reset_peak_memory_stats(device)
        )
        announce_phases(step, counter.enter)
        counter.enter("forward")
        step.run()
        counter.enter(None)
        allocated, phases, over = max(counter.peaks.values()), counter.peaks, "over one step"
        if step.spec.execution == "compiled" and before > allocated:
            allocated, over = before, "over the first steps, in which the compiler tries its kernels"
    step.synchronise()
    return step, {
        "peak_allocated_bytes": allocated,
        "peak_reserved_bytes": max(reserved, torch.cuda.memory_reserved(device)),
        **from_driver(device),
        "phases": phases,
        "method": f"counters of torch.cuda's allocator {over}; process and device from NVML at its end",
    }


def sample_on_mps(make: Callable[[], TrainStep], device: torch.device) -> tuple[TrainStep, dict[str, Any]]:
    """Samples what tensors hold: MPS has no counter that remembers a peak, so what is found is a lower bound."""
    step = make()
    make_steady(step, step.run)
    step.synchronise()
    with PeakSampler(torch.mps.current_allocated_memory, SAMPLE_EVERY_S) as sampler:
        announce_phases(step, sampler.enter)
        sampler.enter("forward")
        step.run()
        step.synchronise()
        sampler.enter(None)
    return step, {
        "peak_allocated_bytes": max(sampler.peaks.values()),
        "peak_reserved_bytes": torch.mps.driver_allocated_memory(),
        "phases": sampler.peaks,
        "method": f"torch.mps.current_allocated_memory, {sampler.n_samples} samples over one step, a lower bound; "
        "reserved from driver_allocated_memory at its end",
    }


def probe_footprint(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Measures by how much this process grows over one steady step, above what it holds before any model is there.

    A small step of the same kind is made first: libraries load and threads start with the first step, whatever its
    size (seen: 90 MiB).

    Args:
        arguments: as of `probe_allocated`.
        send: takes messages; none is sent.

    Returns:
        In bytes: `footprint_bytes`, the growth; `baseline_bytes` and `peak_bytes`, its two ends; `data_bytes`, what of
        the growth holds tokens and windows. None where the system does not tell. `method`.
    """
    spec = from_json(MemorySpec, arguments["memory"])
    warm_up(spec, arguments)
    baseline = resident_bytes()
    resettable = reset_peak_process_bytes()
    peak_before = peak_process_bytes()
    step = build_step(spec, arguments)
    make_steady(step, step.run)
    if resettable:
        reset_peak_process_bytes()  # building is over: the steady step alone counts
    step.run()
    peak = peak_process_bytes()
    hidden = not resettable and peak == peak_before  # under what importing torch once took
    known = None not in (baseline, peak) and not hidden
    return {
        "footprint_bytes": peak - baseline if known else None,
        "baseline_bytes": baseline,
        "peak_bytes": peak,
        "data_bytes": step.batches.host_bytes(),
        "method": "VmHWM less the resident memory before"
        + (" over one step" if resettable else " since the process began")
        if known
        else "not readable",
    }


def warm_up(spec: MemorySpec, arguments: dict[str, Any]) -> None:
    """Makes two steps of a model as small as can be, of the same kind, and forgets it."""
    small = dataclasses.replace(spec.model, n_layer=1, n_embd=2 * spec.model.n_head, n_inner=2 * spec.model.n_head)
    step = build_step(dataclasses.replace(spec, model=small), arguments)
    for _ in range(WARM_STEPS):
        step.run()
    del step
    gc.collect()
