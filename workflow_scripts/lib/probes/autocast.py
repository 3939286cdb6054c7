"""What a precision does to a model: data types read off the tensors, and how far loss and gradients are from fp32's.

Both trainings start from the same weights and see the same batches, in lockstep: first the fp32 step, then the other
precision's, each with its own setting of torch.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workflow_scripts.lib.corpus import load_tokens
from workflow_scripts.lib.outcome import classify
from workflow_scripts.lib.precision import set_precision
from workflow_scripts.lib.probe_specs import AutocastProbe, probe_from_json
from workflow_scripts.lib.specs import StepSpec
from workflow_scripts.lib.step import TrainStep

# In the order in which a step makes them.
POINTS = ("parameters", "first linear", "normalisation", "residual stream", "logits", "loss", "gradients")

Send = Callable[[dict[str, Any]], None]


def probe(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Makes the first steps in each precision.

    Returns:
        `rows`: `precision`, `status`, `reason`, and for what ended well `dtypes` (at each of `POINTS`), `products`
        (how float32 products are computed), and, a value a step, `loss` and `loss_fp32` in nats per token,
        `gradient_distance` (norm of the difference of both gradients over the norm of fp32's; None where it overflowed)
        and `gradient_cosine`.
    """
    spec = probe_from_json(arguments["probe"])
    assert isinstance(spec, AutocastProbe)
    result: dict[str, Any] = {"rows": []}
    for precision in ("fp32", *(name for name in spec.precisions if name != "fp32")):
        try:
            found = {"status": "ok", "reason": "", **compare(spec, precision, arguments)}
        except Exception as error:  # a precision that is not there leaves the others alone
            status, reason = classify(error)
            found = {"status": status, "reason": reason}
        result["rows"].append({"precision": precision, **found})
        send({"partial": result})
    return result


def compare(spec: AutocastProbe, precision: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Trains in fp32 and in `precision`, step by step beside each other."""
    other, plain = build(spec, precision, arguments), build(spec, "fp32", arguments)
    series: dict[str, list[float | None]] = {
        key: [] for key in ("loss", "loss_fp32", "gradient_distance", "gradient_cosine")
    }
    dtypes: dict[str, str] = {}
    for _ in range(spec.n_steps):
        reference, gradient = (gradients(step) for step in (plain, other))
        dtypes = dtypes or observe(other)
        # Sums of products and not dot products, whose rounding grows with the number of parameters.
        size, own = (float((vector * vector).sum().sqrt()) for vector in (reference, gradient))
        distance = float((gradient - reference).square().sum().sqrt()) / size if size else math.nan
        cosine = float((gradient * reference).sum()) / (size * own) if size and own else math.nan
        for key, value in (("gradient_distance", distance), ("gradient_cosine", cosine)):
            series[key].append(value if math.isfinite(value) else None)
        for step, key in ((plain, "loss_fp32"), (other, "loss")):
            set_precision(step.spec.precision, step.device)
            step.run()
            series[key].append(float(step.loss))
    set_precision(other.spec.precision, other.device)
    return {"dtypes": dtypes, "products": other.observed()["product_precision"], **series}


def build(spec: AutocastProbe, precision: str, arguments: dict[str, Any]) -> TrainStep:
    """Builds the step of one precision, eager; equal weights and batches whatever the precision."""
    corpus = json.loads(Path(arguments["corpus"]).read_text(encoding="utf-8"))
    tokens = load_tokens(Path(arguments["tokens"]), corpus, "train")
    step = StepSpec(batch_size=spec.batch_size, precision=precision, execution="eager")
    return TrainStep.build(spec.model, step, spec.optimizer, spec.device, tokens, spec.n_steps, seed=0)


def gradients(step: TrainStep) -> Tensor:
    """Computes the gradient of the next batch, (n_params,) float32, with the scale of fp16's loss taken off."""
    set_precision(step.spec.precision, step.device)
    step.forward_backward()
    flat = torch.cat([parameter.grad.detach().flatten().float() for parameter in step.parameters])
    return flat / step.scaler.get_scale() if step.scaler.is_enabled() else flat


def observe(step: TrainStep) -> dict[str, str]:
    """Reads data types off the tensors of a forward and backward pass that has just been made."""
    seen = step.observe_forward()
    inputs, targets = step.batches.gather(step.cursor)
    with step.autocast():
        loss = step.decoder.loss(inputs[0], targets[0])
    gradient = {str(parameter.grad.dtype).removeprefix("torch.") for parameter in step.parameters}
    found = (
        seen["parameter_dtype"],
        seen["linear_output_dtype"],
        seen["norm_output_dtype"],
        seen["residual_dtype"],
        seen["logits_dtype"],
        str(loss.dtype).removeprefix("torch."),
        "+".join(sorted(gradient)),
    )
    return dict(zip(POINTS, found, strict=True))
