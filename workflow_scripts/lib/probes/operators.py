"""Where the time goes in forward, in forward and backward, and in the whole step: operators by time, count and FLOPs.

A profiler slows what it watches, so none of these times is a step time; see `profiling`, whose way of summing this is.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from workflow_scripts.lib.cell import DRAWN_ON_DEVICE_ABOVE, part
from workflow_scripts.lib.corpus import load_tokens
from workflow_scripts.lib.counts import count_parameters
from workflow_scripts.lib.operator_bytes import typed_events
from workflow_scripts.lib.operator_table import sum_operators
from workflow_scripts.lib.outcome import Unavailable, classify
from workflow_scripts.lib.probe_specs import OperatorsProbe, probe_from_json
from workflow_scripts.lib.step import TrainStep

Send = Callable[[dict[str, Any]], None]


def probe(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Profiles each mode.

    Returns:
        `observed`, what the step really did, and `rows`: `mode`, `status`, `reason` and, where it ended well, the
        fields of `operator_table.OperatorRow`, a row for each operator and phase and one for the idle rest;
        shares of one mode sum to 1.

    Raises:
        Unavailable: no profiler exists for the device.
    """
    spec = probe_from_json(arguments["probe"])
    assert isinstance(spec, OperatorsProbe)
    if spec.device.type not in ("cpu", "cuda"):
        raise Unavailable(f"torch.profiler sees no kernels on {spec.device.type}")
    corpus = json.loads(Path(arguments["corpus"]).read_text(encoding="utf-8"))
    tokens = load_tokens(Path(arguments["tokens"]), corpus, "train")
    draw_on = "device" if count_parameters(spec.model).total > DRAWN_ON_DEVICE_ABOVE else "cpu"
    step = TrainStep.build(spec.model, spec.step, spec.optimizer, spec.device, tokens, 100, 0, draw_on)
    result: dict[str, Any] = {"rows": [], "observed": step.observe_forward()}
    for mode in spec.modes:
        try:
            found = [{"mode": mode, "status": "ok", "reason": "", **row} for row in watched(step, mode, spec)]
        except Exception as error:  # a backward pass that does not fit leaves the forward pass alone
            status, reason = classify(error)
            found = [{"mode": mode, "status": status, "reason": reason}]
        result["rows"] += found
        send({"partial": result})
    return result


def watched(step: TrainStep, mode: str, spec: OperatorsProbe) -> list[dict[str, Any]]:
    """Watches some passes of one mode after some that are not watched, and one that is watched and thrown away."""
    run = part(step, mode)
    for _ in range(spec.warmup_steps):
        run()
    on_device = step.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_device else [])]
    for n_steps in (1, spec.n_steps):
        step.synchronise()
        with torch.profiler.profile(
            activities=activities, record_shapes=True, profile_memory=True, with_flops=True, acc_events=True
        ) as profiler:
            started = time.perf_counter()
            for _ in range(n_steps):
                run()
            step.synchronise()
            wall_s = time.perf_counter() - started
    rows = sum_operators(typed_events(profiler), n_steps=spec.n_steps, wall_s=wall_s, on_device=on_device)
    return [row._asdict() for row in rows]
