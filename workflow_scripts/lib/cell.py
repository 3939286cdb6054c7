"""Times one cell: what the measuring process runs, alone on its device.

The process times a fixed anchor, builds the training step, samples the asked part of it, and only then reads back
memory and what the step really did. About once a second it sends what it has, so that a cell that is stopped keeps its
samples.
"""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

from workflow_scripts.lib.corpus import load_tokens
from workflow_scripts.lib.counts import count_parameters
from workflow_scripts.lib.device_timing import clock_of, time_anchor
from workflow_scripts.lib.energy import count_energy
from workflow_scripts.lib.machine_state import between, energy_j, snapshot
from workflow_scripts.lib.memory import reset_peak_memory
from workflow_scripts.lib.outcome import Diverged
from workflow_scripts.lib.specs import CellSpec, MemorySpec, Mode, from_json
from workflow_scripts.lib.step import TrainStep
from workflow_scripts.lib.timing import Samples, sample_steps

N_BATCHES = 1000  # different batches; longer sampling sees them again
DRAWN_ON_DEVICE_ABOVE = 300_000_000  # parameters; drawing more on the CPU takes longer than measuring them

Send = Callable[[dict[str, Any]], None]


def measure_cell(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Measures one cell.

    Args:
        arguments: `cell` (a `CellSpec` as JSON), `tokens` and `corpus` (paths).
        send: takes `{"partial": result so far}`.

    Returns:
        `cold_s`, `samples_s`, `stop`, `block_size`, `elapsed_s` (see `Samples`); `anchor_s`; `compile_s` (None if
        nothing was compiled); `loss_first`, `loss_last` in nats per token; `tokens_per_step`; `memory` (bytes, with
        `data_bytes`: what of it holds tokens and windows); `energy` (see `count_energy`); `machine`: its state `before`
        and `after` sampling, and the rates `between`; `observed`. In mode `optimizer` both losses are of the one batch
        whose gradients are applied again and again; in `forward` and `forward_backward` the weights stand still.

    Raises:
        Diverged: the loss became NaN or infinite.
        Unavailable: the device cannot do what the cell asks for.
    """
    cell = from_json(CellSpec, arguments["cell"])
    torch.set_num_threads(cell.device.threads)
    device = torch.device(cell.device.torch_name)
    anchor_s = time_anchor(device)
    reset_peak_memory(device)

    step = build_step(cell, arguments)
    result: dict[str, Any] = {
        "anchor_s": anchor_s,
        "tokens_per_step": cell.step.batch_size * cell.model.sequence_length,
        "loss_first": None,
        "loss_last": None,
    }

    def report(samples: Samples) -> None:
        result.update(dataclasses.asdict(samples))
        loss = float(step.loss)  # synchronises, between samples
        if not math.isfinite(loss):
            send({"partial": dict(result)})
            done = f"{len(samples.cold_s)} cold and {len(samples.samples_s)} warm samples"
            last = result["loss_last"]
            known = "no finite loss before" if last is None else f"last finite loss {last:.6g}"
            raise Diverged(f"the loss is {loss} after {done}; {known}")
        result["loss_first"] = loss if result["loss_first"] is None else result["loss_first"]
        result["loss_last"] = loss
        send({"partial": dict(result)})

    if cell.mode == "optimizer":
        step.forward_backward()
    run, before = part(step, cell.mode), snapshot(cell.device)
    result["machine"] = {"before": before}
    samples = sample_steps(run, step.synchronise, clock=clock_of(device), measure=cell.measure, report=report)
    after = snapshot(cell.device)
    result["machine"] |= {"after": after, "between": between(before, after)}
    report(samples)
    result["energy"] = count_energy(run, step.synchronise, lambda: energy_j(cell.device))
    # Before reading back, which takes memory of its own.
    result["memory"] = {**step.memory(), "data_bytes": step.batches.allocated_bytes()}
    observed = step.observed()
    return {**result, "compile_s": observed["compile_s"], "observed": {**observed, "weights_drawn_on": drawn_on(cell)}}


def build_step(cell: CellSpec | MemorySpec, arguments: dict[str, Any]) -> TrainStep:
    """Builds the step of a cell, the same for everything that is measured of it.

    Args:
        cell: what is measured.
        arguments: `tokens` and `corpus` (paths).

    Raises:
        ValueError: the corpus has ids that the model has no embedding for.
    """
    corpus = json.loads(Path(arguments["corpus"]).read_text(encoding="utf-8"))
    if corpus["vocab_size"] > cell.model.vocab_size:
        raise ValueError(
            f"the corpus has {corpus['vocab_size']} different tokens, the model's vocab_size is "
            f"{cell.model.vocab_size}: raise it to at least that"
        )
    tokens = load_tokens(Path(arguments["tokens"]), corpus, "train")
    return TrainStep.build(
        cell.model, cell.step, cell.optimizer, cell.device, tokens, N_BATCHES, cell.seed, drawn_on(cell)
    )


def drawn_on(cell: CellSpec | MemorySpec) -> Literal["cpu", "device"]:
    """Where the initial weights are drawn."""
    return "device" if count_parameters(cell.model).total > DRAWN_ON_DEVICE_ABOVE else "cpu"


def part(step: TrainStep, mode: Mode) -> Callable[[], None]:
    """Gives the part of the step that a mode times."""
    parts = {
        "forward": step.forward,
        "forward_backward": step.forward_backward,
        "optimizer": step.optimizer_step,
        "step": step.run,
    }
    return parts[mode]
