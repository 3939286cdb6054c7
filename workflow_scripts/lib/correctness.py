"""Correct before fast: tries one precision and execution on a small model of each architecture, before it is timed.

Five probes, on the very step that is timed:

- **Finite.** No loss of the first `STEPS` steps is NaN or infinite.
- **Loss and gradient.** Loss and gradient norm of step 0 against the same weights on the CPU in float64, where the loss
  is written out here: neither the device's kernels nor the model's own loss are trusted. At the vocabulary really used,
  and `BATCH` sequences (a head on MPS was wrong from 9 on: pytorch/pytorch#109457).
- **Accumulation.** The same batch in micro-batches: same loss, same gradient norm (karpathy/nanoGPT#168: a loss that
  grew with their number). Eager steps only: how gradients add up does not depend on execution.
- **Steps.** Compiled or captured steps against eager ones of the same precision, by their losses.
- **Causality.** Other tokens after t must leave everything up to t as it was (pytorch/pytorch#195910: a mask that was
  applied to groups of four queries), and change something after t, or the probe would be blind.
"""

import dataclasses
import math
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workflow_scripts.lib.counts import default_inner
from workflow_scripts.lib.model import build_decoder
from workflow_scripts.lib.outcome import Ended, classify
from workflow_scripts.lib.precision import set_precision
from workflow_scripts.lib.specs import (
    Architecture,
    DeviceSpec,
    ModelShape,
    OptimizerSpec,
    StepSpec,
    from_json,
)
from workflow_scripts.lib.step import TrainStep
from workflow_scripts.lib.time_sheet import TimeSheet

BATCH = 12
LENGTHS = (128, 64, 32, 16)  # the longest whose logits are few enough
MOST_LOGITS = 2**23  # 32 MiB in float32
STEPS = 5
PATIENCE_S = 300.0
MICRO_BATCHES = 4
SEED = 0
# Weights are drawn this many times wider than usual: a fresh model says almost ln V whatever is wrong inside it.
WIDER = 4.0

# Largest differences allowed. `loss`: of step 0, in nats per token. `gradient_norm`: of step 0, relative. `steps`: of
# any of the first losses, relative. `accumulation`: of loss and gradient norm, relative. `causality`: of logits, or of
# their part in a mean loss, where nothing must change; equal logits are expected in any precision, as equal shapes take
# equal kernels, and losses in float32 round at 1e-6.
# Half precision rounds to 8 (bf16) or 11 (fp16, tf32) bits, so a norm over many products errs by some per mille.
FULL = {"loss": 1e-3, "gradient_norm": 1e-2, "accumulation": 1e-3, "steps": 1e-3, "causality": 2e-5}
HALF = {"loss": 2e-2, "gradient_norm": 5e-2, "accumulation": 5e-2, "steps": 2e-2, "causality": 2e-5}
TOLERANCES = {"fp32": FULL, "tf32": HALF, "bf16": HALF, "fp16": HALF}

OPTIMIZER = OptimizerSpec(
    name="adamw",
    learning_rate=1e-3,
    min_learning_rate=1e-3,
    warmup_steps=0,
    decay_steps=1,
    schedule="constant",
    weight_decay=0.1,
    beta1=0.9,
    beta2=0.95,
    momentum=0.0,
    grad_clip=1.0,
)


def check_pairs(arguments: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Checks pairs of precision and execution one after the other: all of them, or as many as one process should.

    In one process the compiler starts once, and a captured step finds what the compiled one left. After an unforeseen
    error what it says next cannot be believed, so it ends there, and so it does after `PATIENCE_S`: a check that hangs
    is then told from many that are slow.

    Args:
        arguments: `device` (a `DeviceSpec` as JSON), `pairs` (each with `precision`, `execution`, `architectures`),
            `vocab_size`.
        send: takes `{"partial": result so far}`.

    Returns:
        `pairs`: for each tried its `status`, `reason`, `result` (`checks`: for each architecture what
        `check_architecture` gives; None unless `status` is `ok`) and `wall_s`.
    """
    tried, began = [], time.monotonic()
    for pair in arguments["pairs"]:
        torch._dynamo.reset()  # it gives up on a function that it has compiled in several ways
        start = time.monotonic()
        tried.append({**_tried(pair, arguments), "wall_s": time.monotonic() - start})
        send({"partial": {"pairs": tried}})
        if tried[-1]["status"] in ("error", "oom") or time.monotonic() - began > PATIENCE_S:
            break
    return {"pairs": tried}


def _tried(pair: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    device, vocab_size = from_json(DeviceSpec, arguments["device"]), arguments["vocab_size"]
    step = StepSpec(batch_size=BATCH, precision=pair["precision"], execution=pair["execution"])
    try:
        checks = [check_architecture(architecture, step, device, vocab_size) for architecture in pair["architectures"]]
    except Exception as error:  # whatever it is, it becomes a status
        if not isinstance(error, Ended):
            traceback.print_exc()
        status, reason = classify(error)
        return {"status": status, "reason": reason, "result": None}
    return {"status": "ok", "reason": "", "result": {"checks": checks}}


def check_architecture(
    architecture: Architecture, spec: StepSpec, device: DeviceSpec, vocab_size: int
) -> dict[str, Any]:
    """Applies all probes to a small model of one architecture.

    Returns:
        `architecture`, `shape` (batch_size, sequence_length, n_layer, n_embd, vocab_size), the differences found
        (`loss`, `gradient_norm`, `accumulation`, `steps`, `causality`: see `TOLERANCES`; None where not applicable),
        `tolerances`, `losses` (nats per token), `seconds` (spent on `reference`, `first_step`, which compiles, and
        `rest`), `failures`: a line for each probe that failed.
    """
    sheet = TimeSheet("rest")
    shape = small_shape(architecture, vocab_size)
    step = build(shape, spec, device)
    with sheet.spend("reference"):
        expected_loss, expected_norm = reference(shape, *first_batch(step))
        eager = (
            losses(build(shape, dataclasses.replace(spec, execution="eager"), device))
            if spec.execution != "eager"
            else None
        )
    set_precision(spec.precision, step.device)  # building for another purpose may have changed it
    with sheet.spend("first_step"):
        step.run()
        found_loss, found_norm = float(step.loss), float(step.grad_norm)
    found = [found_loss, *losses(step, STEPS - 1)]
    kept, changed = causality(step)
    differences = {
        "loss": abs(found_loss - expected_loss),
        # A step that fp16's scaler skipped has no finite norm; that is how scaling finds its way, and no fault.
        "gradient_norm": abs(found_norm / expected_norm - 1.0)
        if math.isfinite(found_norm) or spec.precision != "fp16"
        else None,
        "accumulation": accumulation(shape, spec, device, found_loss, found_norm) if eager is None else None,
        "steps": max(abs(a / b - 1.0) for a, b in zip(found, eager, strict=True)) if eager else None,
        "causality": kept,
    }
    tolerances = TOLERANCES[spec.precision]
    failures = [] if all(map(math.isfinite, found)) else [f"the loss is not finite: {found}"]
    failures += [
        f"{WORDS[name].format(difference)} (at most {tolerances[name]:g} allowed)"
        for name, difference in differences.items()
        if difference is not None and not difference <= tolerances[name]
    ]
    if not changed > tolerances["causality"]:
        failures.append(f"the causality probe is blind: other tokens change what follows them by {changed:.2g} only")
    return {
        "architecture": architecture,
        "shape": {
            "batch_size": BATCH,
            **{name: getattr(shape, name) for name in ("sequence_length", "n_layer", "n_embd", "vocab_size")},
        },
        **differences,
        "change_after": changed,
        "tolerances": tolerances,
        "losses": found,
        "seconds": sheet.totals(),
        "failures": [f"{architecture}: {failure}" for failure in failures],
    }


WORDS = {
    "loss": "the loss of step 0 differs from the CPU's in float64 by {:.2g} nats per token",
    "gradient_norm": "the gradient norm of step 0 differs from the CPU's in float64 by a share of {:.2g}",
    "accumulation": "accumulated from micro-batches, loss or gradient norm differ by a share of {:.2g}",
    "steps": "the first losses differ from those of eager steps by a share of {:.2g}",
    "causality": "tokens after a position change what is said there by {:.2g}: the causal mask leaks",
}


def small_shape(architecture: Architecture, vocab_size: int) -> ModelShape:
    """A model of two layers at the vocabulary really used, with as long a context as memory allows."""
    length = next((n for n in LENGTHS if BATCH * n * vocab_size <= MOST_LOGITS), LENGTHS[-1])
    return ModelShape(
        architecture=architecture,
        n_layer=2,
        n_head=4,
        n_embd=64,
        n_inner=default_inner(architecture, 64),
        vocab_size=vocab_size,
        sequence_length=length,
        bias=architecture == "gpt2",
    )


def build(shape: ModelShape, spec: StepSpec, device: DeviceSpec) -> TrainStep:
    """A step on random tokens, with the weights that every device starts from, widened."""
    tokens = np.random.default_rng(SEED).integers(shape.vocab_size, size=16 * shape.sequence_length)
    narrow = tokens.astype(np.min_scalar_type(shape.vocab_size - 1))
    step = TrainStep.build(shape, spec, OPTIMIZER, device, narrow, STEPS, SEED)
    widen(step.decoder)
    return step


@torch.no_grad()
def widen(decoder: torch.nn.Module) -> None:
    """Multiplies all matrices by `WIDER`, in place."""
    for parameter in decoder.parameters():
        if parameter.ndim > 1:
            parameter.mul_(WIDER)


def first_batch(step: TrainStep) -> tuple[Tensor, Tensor]:
    """Inputs and targets of the step's first batch, each (B, T) int64, on the CPU."""
    inputs, targets = step.batches.gather(step.cursor)
    return inputs[0].cpu(), targets[0].cpu()


def reference(shape: ModelShape, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
    """Loss in nats per token and gradient norm of a batch (B, T), on the CPU in float64, the loss written out."""
    decoder = build_decoder(shape, "cpu", SEED)
    widen(decoder)
    decoder.double()
    logits = decoder(inputs)  # (B, T, V)
    loss = (logits.logsumexp(-1) - logits.gather(-1, targets[..., None])[..., 0]).mean()
    loss.backward()
    return float(loss.detach()), float(torch.stack([p.grad.norm() for p in decoder.parameters()]).norm())


def losses(step: TrainStep, n: int = STEPS) -> list[float]:
    """Runs n steps and gives the loss of each, in nats per token."""
    found = []
    for _ in range(n):
        step.run()
        found.append(float(step.loss))
    return found


def accumulation(shape: ModelShape, spec: StepSpec, device: DeviceSpec, loss: float, norm: float) -> float | None:
    """Compares loss and gradient norm of a step with those of the same batch in micro-batches.

    Returns:
        The larger relative difference; None where fp16's scaler skipped either step.
    """
    step = build(shape, dataclasses.replace(spec, accumulation=MICRO_BATCHES), device)
    step.run()
    found_loss, found_norm = float(step.loss), float(step.grad_norm)
    if spec.precision == "fp16" and not (math.isfinite(found_norm) and math.isfinite(norm)):
        return None
    return max(abs(found_loss / loss - 1.0), abs(found_norm / norm - 1.0))


def causality(step: TrainStep) -> tuple[float, float]:
    """Changes the tokens after a position, another one in each sequence, and looks at both sides of it.

    Eager steps are judged by the decoder's logits; others by the loss that they compile, see `_loss_change`.

    Returns:
        The largest change up to t, 0 for a causal model, and after t.
    """
    inputs, targets = (part[0] for part in step.batches.gather(step.cursor))  # (B, T)
    B, T = inputs.shape
    last_kept = torch.linspace(0, T - 2, B, device=inputs.device).long()  # t, of every residue modulo 4
    after = torch.arange(T, device=inputs.device) > last_kept[:, None]  # (B, T)
    changed = torch.where(after, _another(inputs, step), inputs)
    if step.spec.execution == "eager":
        with torch.no_grad(), step.autocast():
            difference = (step.decoder(inputs).float() - step.decoder(changed).float()).abs().amax(-1)  # (B, T)
        return float(difference[~after].max()), float(difference[after].max())
    kept, following = (_loss_change(step, inputs, changed, targets, where) for where in (~after, after))
    return kept, following


def _loss_change(step: TrainStep, inputs: Tensor, changed: Tensor, targets: Tensor, where: Tensor) -> float:
    """By how much what the loss owes to the positions `where` (B, T) differs between two inputs (B, T).

    With other targets there, the mean loss changes by logits of these positions only: the rest cancels. (Targets that
    the loss ignores would leave them out, too, but training has none, so a fused loss need not know them.)
    """
    other = torch.where(where, _another(targets, step), targets)

    def loss(tokens: Tensor, asked: Tensor) -> float:
        # Gradients stay on: without them the compiler would make another graph than the one that is timed.
        with step.autocast():
            return float(step.loss_of(tokens, asked).detach())

    before, after = (loss(tokens, other) - loss(tokens, targets) for tokens in (inputs, changed))
    return abs(after - before)


def _another(tokens: Tensor, step: TrainStep) -> Tensor:
    """Another token in every place."""
    return (tokens + 1) % step.decoder.shape.vocab_size
