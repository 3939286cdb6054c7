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
from typing import Any

import torch

from workflow_scripts.lib.corpus import load_tokens
from workflow_scripts.lib.counts import count_parameters
from workflow_scripts.lib.device_timing import clock_of, time_anchor
from workflow_scripts.lib.memory import reset_peak_memory
from workflow_scripts.lib.outcome import Diverged
from workflow_scripts.lib.specs import CellSpec, Mode, from_json
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
        nothing was compiled); `loss_first`, `loss_last` in nats per token; `tokens_per_step`; `memory` (bytes);
        `observed`. In mode `optimizer` both losses are of the one batch whose gradients are applied again and again; in
        `forward` and `forward_backward` the weights stand still.

    Raises:
        Diverged: the loss became NaN or infinite.
        Unavailable: the device cannot do what the cell asks for.
    """
    cell = from_json(CellSpec, arguments["cell"])
    corpus = json.loads(Path(arguments["corpus"]).read_text(encoding="utf-8"))
    check_vocabulary(cell, corpus)
    torch.set_num_threads(cell.device.threads)
    device = torch.device(cell.device.torch_name)
    anchor_s = time_anchor(device)
    reset_peak_memory(device)

    tokens = load_tokens(Path(arguments["tokens"]), corpus, "train")
    draw_on = "device" if count_parameters(cell.model).total > DRAWN_ON_DEVICE_ABOVE else "cpu"
    step = TrainStep.build(cell.model, cell.step, cell.optimizer, cell.device, tokens, N_BATCHES, cell.seed, draw_on)
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
            raise Diverged(f"the loss is {loss} after {done}; last finite loss {result['loss_last']}")
        result["loss_first"] = loss if result["loss_first"] is None else result["loss_first"]
        result["loss_last"] = loss
        send({"partial": dict(result)})

    if cell.mode == "optimizer":
        step.forward_backward()
    samples = sample_steps(
        part(step, cell.mode), step.synchronise, clock=clock_of(device), measure=cell.measure, report=report
    )
    report(samples)
    result["memory"] = step.memory()  # before reading back, which takes memory of its own
    observed = step.observed()
    return {**result, "compile_s": observed["compile_s"], "observed": {**observed, "weights_drawn_on": draw_on}}


def part(step: TrainStep, mode: Mode) -> Callable[[], None]:
    """Gives the part of the step that a mode times."""
    parts = {
        "forward": step.forward,
        "forward_backward": step.forward_backward,
        "optimizer": step.optimizer_step,
        "step": step.run,
    }
    return parts[mode]


def check_vocabulary(cell: CellSpec, corpus: dict[str, Any]) -> None:
    """Raises ValueError if the corpus has ids that the model has no embedding for."""
    if corpus["vocab_size"] > cell.model.vocab_size:
        raise ValueError(
            f"the corpus has {corpus['vocab_size']} different tokens, the model's vocab_size is "
            f"{cell.model.vocab_size}: raise it to at least that"
        )
