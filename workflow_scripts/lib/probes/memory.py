"""Memory over time: what a forward pass and a full step allocate and free, in order, and what is there at the peak.

Watching slows a step, so no time is taken. The same pass goes before it unwatched, in the same trace: its peak must be
that of the watched one, or watching has changed what it saw.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from workflow_scripts.lib.allocation_trace import (
    DATA,
    GRADIENTS,
    PARAMETERS,
    STATE,
    Held,
    alive,
    blocks_of,
    by_category,
    largest,
    name_blocks,
    peak,
    timeline,
)
from workflow_scripts.lib.allocation_watch import HistoryTrace, ProfilerTrace, Trace, Watch, tensor_of
from workflow_scripts.lib.cell import build_step, part
from workflow_scripts.lib.memory_phases import announce_phases
from workflow_scripts.lib.memory_probe import make_steady
from workflow_scripts.lib.outcome import Unavailable, classify
from workflow_scripts.lib.probe_specs import MemoryProbe, probe_from_json
from workflow_scripts.lib.specs import MemorySpec, Mode
from workflow_scripts.lib.step import TrainStep

Send = Callable[[dict[str, Any]], None]


def probe(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Traces each pass of the probe's models and steps; a job gives one of each, so that the trace is of one alone.

    Args:
        arguments: `probe`, `tokens`, `corpus`, and `kept`: a folder for CUDA's snapshots.
        send: takes the rows so far.

    Returns:
        `rows`: `precision`, `sequence_length`, `batch_size`, `checkpointing`, `mode`, `status`, `reason` and, where it
        ended well, what `trace_pass` gives.
    """
    spec = probe_from_json(arguments["probe"])
    assert isinstance(spec, MemoryProbe)
    rows: list[dict[str, Any]] = []
    for model in spec.models:
        for step in spec.steps:
            for mode in spec.modes:
                what = MemorySpec(
                    id=spec.id, device=spec.device, model=model, step=step, optimizer=spec.optimizer,
                    timeout_s=spec.timeout_s, seed=0,
                )  # fmt: skip
                asked = {
                    "precision": step.precision, "sequence_length": model.sequence_length, "mode": mode,
                    "batch_size": step.batch_size, "checkpointing": step.checkpointing,
                }  # fmt: skip
                lost = {"status": "failed", "reason": "the process ended while it was traced"}
                send({"partial": {"rows": [*rows, asked | lost]}})
                name = f"{model.sequence_length}-{step.precision}-{mode}.pickle"
                try:
                    found = trace_pass(what, mode, arguments, Path(arguments["kept"]) / name)
                    rows.append({**asked, "status": "ok", "reason": "", **found})
                except Exception as error:  # what does not fit leaves the others alone
                    status, reason = classify(error)
                    rows.append({**asked, "status": status, "reason": reason})
    return {"rows": rows}


def trace_pass(spec: MemorySpec, mode: Mode, arguments: dict[str, Any], snapshot: Path) -> dict[str, Any]:
    """Traces one steady pass, after one that is not watched.

    Returns:
        In bytes: `peak_bytes`; `unwatched_peak_bytes`; `counted_peak_bytes`, the same by the allocator's counter (None
        on a CPU); `phases`, the peak within each; `categories` and `blocks`, what is there at the peak (see
        `allocation_trace.largest`); `timeline`, with `phase_starts` and `peak_place` by its places, counted in
        allocations and frees; `data_bytes`, what holds tokens and windows. `n_events` and `n_calls` of the pass;
        `method`; `snapshot`, the file's name or None; `observed`.

    Raises:
        Unavailable: the device tells of no single allocation.
    """
    device = torch.device(spec.device.torch_name)
    if device.type not in ("cpu", "cuda"):
        raise Unavailable(f"torch traces no allocations on {device.type}")
    on_cuda = device.type == "cuda"
    trace: Trace = HistoryTrace(device) if on_cuda else ProfilerTrace()
    step = build_step(spec, arguments)
    run = part(step, mode)
    make_steady(step, run)
    if on_cuda:
        torch.cuda.reset_peak_memory_stats(device)
    unwatched = trace.mark()
    run()
    counted = torch.cuda.max_memory_allocated(device) if on_cuda else None

    watch = Watch(trace, step.decoder)
    marks: list[tuple[str, int]] = []

    def enter(phase: str) -> None:
        watch.forward = phase == "forward"
        marks.append((phase, trace.mark()))

    announce_phases(step, enter)
    start = trace.mark()
    before = holdings(step)
    enter("forward")
    with watch:
        run()
    watch.close()
    stop = trace.mark()
    after = holdings(step)
    trace.stop(snapshot)
    place, events = trace.place, trace.events

    kept_from = place(next(token for phase, token in marks if phase == "backward"))
    held = [Held(at=place(token), role=role, name=name, tensor=tensor)
            for token, found in ((start, before), (stop, after)) for role, name, tensor in found]  # fmt: skip
    blocks = name_blocks(blocks_of(events), watch.calls_of(), held, place(start), kept_from)
    starts = {name: place(token) for name, token in reversed(marks) if name != "backward" or mode != "forward"}
    ends = [*sorted(starts.values())[1:], place(stop)]
    phases = {name: peak(events, begin, end) for (name, begin), end in
              zip(sorted(starts.items(), key=lambda item: item[1]), ends, strict=True)}  # fmt: skip
    highest, where = peak(events, place(start), place(stop))
    at_peak = alive(blocks, where)
    return {
        "peak_bytes": highest,
        "unwatched_peak_bytes": peak(events, place(unwatched), place(start))[0],
        "counted_peak_bytes": counted,
        "phases": {name: size for name, (size, _) in phases.items()},
        "categories": by_category(at_peak),
        "blocks": largest(at_peak),
        "n_blocks": len(at_peak),
        "timeline": timeline(blocks, place(start), place(stop), [where, *(at for _, at in phases.values())]),
        "phase_starts": {name: begin - place(start) for name, begin in starts.items()},
        "peak_place": where - place(start),
        "data_bytes": step.batches.allocated_bytes(),
        "n_events": place(stop) - place(start),
        "n_calls": len(watch.calls),
        "method": trace.method,
        "snapshot": snapshot.name if on_cuda else None,
        "observed": step.observed(),
    }


def holdings(step: TrainStep) -> list[tuple[str, str, Any]]:
    """The tensors whose role is known whoever wrote them: role, name, tensor."""
    sources = (vars(step), vars(step.batches), vars(step.optimizer), dict(step.decoder.named_buffers()))
    found = [
        (DATA, name, tensor_of(value))
        for source in sources
        for name, value in source.items()
        if torch.is_tensor(value) and value.device == step.device
    ]
    states = step.optimizer.inner.state
    for name, parameter in step.decoder.named_parameters():
        found.append((PARAMETERS, name, tensor_of(parameter)))
        if parameter.grad is not None:
            found.append((GRADIENTS, name, tensor_of(parameter.grad)))
        for key, value in states.get(parameter, {}).items():
            if torch.is_tensor(value):
                found.append((STATE, f"{name} {key}", tensor_of(value)))
    return found
