"""Profiles a few training steps: operators by time, FLOPs and memory, and a trace for Perfetto.

A profiler slows the steps that it watches, so this is a process and a record of its own, and no time of it is ever a
step time. It watches the same `TrainStep` that cells and runs use.
"""

import json
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function

from workflow_scripts.lib.corpus import load_tokens
from workflow_scripts.lib.operator_bytes import typed_events
from workflow_scripts.lib.operator_categories import CATEGORIES
from workflow_scripts.lib.operator_table import OperatorRow, sum_operators
from workflow_scripts.lib.outcome import Unavailable
from workflow_scripts.lib.specs import ProfileSpec, from_json
from workflow_scripts.lib.step import TrainStep
from workflow_scripts.lib.timeline import write_trace
from workflow_scripts.lib.whole_files import write_rows


def profile(arguments: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Profiles `n_steps` steps after `warmup_steps` that are not watched and one that is watched and thrown away.

    Args:
        arguments: `profile` (a `ProfileSpec` as JSON), `tokens` and `corpus` (paths), `operators` and `trace` (paths
            to write).
        send: takes messages; none is sent.

    Returns:
        The result of the profile's record, times in s per step: `step_wall_s` (watched), `slowdown` (that over the same
        steps unwatched: where it is far above 1 on a GPU, much of the idle share is the profiler's own), `traced_s`,
        `idle_share`, `categories` and `phases` (share of each), `flops_per_step`, `time_basis`, `n_steps`,
        `trace_bytes`, `observed`.

    Raises:
        Unavailable: no profiler exists for the device.
    """
    spec = from_json(ProfileSpec, arguments["profile"])
    device = torch.device(spec.device.torch_name)
    if device.type not in ("cpu", "cuda"):
        raise Unavailable(f"torch.profiler sees no kernels on {device.type}")
    corpus = json.loads(Path(arguments["corpus"]).read_text(encoding="utf-8"))
    if spec.step.execution == "compiled" and device.type == "cpu":
        # Compiled kernels of a CPU show in a trace only if they were compiled to. It costs time, so nowhere but here.
        torch._inductor.config.cpp.enable_kernel_profile = True
    step = TrainStep.build(
        model=spec.model,
        step=spec.step,
        optimizer=spec.optimizer,
        device=spec.device,
        tokens=load_tokens(Path(arguments["tokens"]), corpus, "train"),
        n_steps=spec.warmup_steps + 1 + 2 * spec.n_steps,
        seed=spec.seed,
    )
    for _ in range(spec.warmup_steps):
        step.run()
    unwatched_s = run_steps(step, spec.n_steps)
    watch(step, 1)  # the profiler's own start-up
    profiler, wall_s = watch(step, spec.n_steps)
    on_device = device.type == "cuda"
    rows = sum_operators(typed_events(profiler), n_steps=spec.n_steps, wall_s=wall_s, on_device=on_device)
    write_rows(Path(arguments["operators"]), OperatorRow._fields, rows)
    trace = Path(arguments["trace"])
    write_trace(trace, trace_of(profiler), f"{spec.name} on {spec.device.id}")
    return {
        "n_steps": spec.n_steps,
        "time_basis": "kernels on the device" if on_device else "operators on the CPU",
        "step_wall_s": wall_s / spec.n_steps,
        "slowdown": wall_s / unwatched_s,
        "traced_s": math.fsum(row.self_time_s for row in rows[:-1]),
        "idle_share": rows[-1].share,
        "categories": shares(rows, "category", CATEGORIES),
        "phases": shares(rows[:-1], "phase", ("forward", "backward", "optimizer", "")),
        "flops_per_step": math.fsum(row.flops or 0.0 for row in rows) or None,
        "trace_bytes": trace.stat().st_size,
        "observed": step.observed(),
    }


def watch(step: TrainStep, n_steps: int) -> tuple[torch.profiler.profile, float]:
    """Runs steps under the profiler and gives it with their wall time in s, synchronised at both ends."""
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with torch.profiler.profile(
        activities=activities, record_shapes=True, profile_memory=True, with_flops=True, acc_events=True
    ) as profiler:
        wall_s = run_steps(step, n_steps)
    return profiler, wall_s


def run_steps(step: TrainStep, n_steps: int) -> float:
    """Runs steps, each under a mark that a profiler shows; gives their wall time in s, synchronised at both ends."""
    step.synchronise()
    started = time.perf_counter()
    for i in range(n_steps):
        with record_function(f"step {i + 1}"):
            step.run()
    step.synchronise()
    return time.perf_counter() - started


def trace_of(profiler: torch.profiler.profile) -> dict[str, Any]:
    """Gives the profiler's trace in Chrome's format."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return json.loads(path.read_text(encoding="utf-8", errors="replace"))


def shares(rows: list[OperatorRow], by: str, names: tuple[str, ...]) -> dict[str, float]:
    """Sums the shares of rows by one of their fields, in the order of `names`, leaving out what did not occur."""
    sums = {name: math.fsum(row.share for row in rows if getattr(row, by) == name) for name in names}
    return {name or "not told": share for name, share in sums.items() if share}
