"""What the processes of `throughput.py` and `learning.py` do: nanoGPT's side, Assay's, the ceiling, a training."""

import dataclasses
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.nanogpt_loop import build_iteration
from benchmarks.presets import PRESETS
from workflow_scripts.lib.device_timing import clock_of, synchronise
from workflow_scripts.lib.evaluation import choose_windows, validation_loss
from workflow_scripts.lib.memory import peak_memory, reset_peak_memory
from workflow_scripts.lib.precision import set_precision
from workflow_scripts.lib.specs import DeviceSpec, MeasureSpec, StepSpec, from_json
from workflow_scripts.lib.step import TrainStep
from workflow_scripts.lib.timing import sample_steps

N_BATCHES = 1000
PRODUCT_SAMPLES = 30
PRODUCT_SIZES = {"cuda": {"bf16": 8192, "fp16": 8192, "tf32": 8192, "fp32": 4096}, "cpu": {"fp32": 1024, "bf16": 1024}}

Send = Callable[[dict[str, Any]], None]


def measure_nanogpt(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Times nanoGPT's iteration.

    Args:
        arguments: `preset`, `device` (DeviceSpec), `measure` (MeasureSpec), `data` (path), `seed`, `nanogpt` (path).
        send: unused.

    Returns:
        `cold_s`, `samples_s` (s per step, see `Samples`), `stop`; `loss`, in nats per token, of the last step;
        `memory`; `threads`.
    """
    device = from_json(DeviceSpec, arguments["device"])
    torch.set_num_threads(device.threads)
    preset, where = PRESETS[arguments["preset"]], torch.device(device.torch_name)
    data = Path(arguments["data"])
    iterate = build_iteration(Path(arguments["nanogpt"]), preset, data, device.torch_name, arguments["seed"])
    last: list[torch.Tensor] = []

    def run() -> None:
        last[:] = [iterate()]

    return {**_sample(run, where, arguments), "loss": float(last[0])}


def measure_assay(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Times `TrainStep.run`; arguments as before, but `case` instead of `nanogpt`; gives `observed`, too."""
    device = from_json(DeviceSpec, arguments["device"])
    preset, where = PRESETS[arguments["preset"]], torch.device(device.torch_name)
    spec = StepSpec(batch_size=preset.batch_size, **arguments["case"])
    tokens = np.memmap(arguments["data"], dtype=np.uint16, mode="r")
    step = TrainStep.build(preset.shape, spec, preset.optimizer, device, tokens, N_BATCHES, arguments["seed"])
    sampled = _sample(step.run, where, arguments)
    return {**sampled, "loss": float(step.loss), "observed": step.observed()}


def measure_ceiling(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Times large matrix products of random numbers: `flop_per_s` (median) by precision, for `precisions`."""
    device = from_json(DeviceSpec, arguments["device"])
    torch.set_num_threads(device.threads)
    where = torch.device(device.torch_name)
    ceilings = {precision: _product_rate(precision, where) for precision in arguments["precisions"]}
    return {"flop_per_s": ceilings, "environment": _environment(where)}


def _sample(run: Callable[[], None], device: torch.device, arguments: dict[str, Any]) -> dict[str, Any]:
    reset_peak_memory(device)
    measure = from_json(MeasureSpec, arguments["measure"])
    samples = sample_steps(run, lambda: synchronise(device), clock=clock_of(device), measure=measure)
    return {**dataclasses.asdict(samples), "memory": peak_memory(device), "threads": torch.get_num_threads()}


def _product_rate(precision: str, device: torch.device) -> float:
    n = PRODUCT_SIZES[device.type][precision]
    set_precision(precision, device)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    left, right = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    out, clock, times = torch.empty(n, n, device=device, dtype=dtype), clock_of(device), []
    for _ in range(PRODUCT_SAMPLES):
        synchronise(device)
        start = clock.mark()
        torch.mm(left, right, out=out)
        end = clock.mark()
        synchronise(device)
        times.append(clock.seconds(start, end))
    return 2 * n**3 / statistics.median(times[PRODUCT_SAMPLES // 3 :])


def _environment(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "device_name": name}


def measure_learning(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Trains a preset's configuration to its end on a text, as nanoGPT's config does, and evaluates as it goes.

    Args:
        arguments: `preset`, `device`, `case`, `data` as before; `validation` (path, uint16), `n_steps`, `eval_every`,
            `seed`.
        send: takes `{"step", "val_loss"}` after each evaluation.

    Returns:
        `val_loss`: pairs (step, nats per token over the whole validation split); `observed`.
    """
    device = from_json(DeviceSpec, arguments["device"])
    preset = PRESETS[arguments["preset"]]
    T, n_steps = preset.shape.sequence_length, arguments["n_steps"]
    spec = StepSpec(batch_size=preset.batch_size, **arguments["case"])
    tokens = np.memmap(arguments["data"], dtype=np.uint16, mode="r")
    held_out = np.memmap(arguments["validation"], dtype=np.uint16, mode="r")
    windows = choose_windows(held_out, len(held_out) // T, T)
    step = TrainStep.build(preset.shape, spec, preset.optimizer, device, tokens, n_steps, arguments["seed"])
    curve = []
    while step.steps_done < n_steps:
        for _ in range(min(arguments["eval_every"], n_steps - step.steps_done)):
            step.run()
        with step.autocast():
            loss = validation_loss(step.decoder, windows, device=device.torch_name, chunk=preset.batch_size)
        curve.append((step.steps_done, loss))
        send({"step": step.steps_done, "val_loss": loss})
    return {"val_loss": curve, "observed": step.observed()}
