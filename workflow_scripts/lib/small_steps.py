"""What a step costs beyond its operators, which does not depend on their sizes: read off steps of tiny models.

Models of one block and of more, passes and update apart: as what a step takes more than its passes, an update would be
lost in what those differ by from one time to the next.
"""

from collections.abc import Callable
from statistics import median, median_low
from typing import Any

import numpy as np

from workflow_scripts.lib.counts import default_inner
from workflow_scripts.lib.specs import DeviceSpec, DeviceType, ModelShape, OptimizerSpec, Precision, StepSpec, to_json
from workflow_scripts.lib.step import TrainStep

# Tiny models whose steps are timed: architecture, biases, layers; a step repeats for so many points' time, on GPUs for
# more, where all that the host takes is read off these steps.
MODELS = tuple((*kind, n_layer) for kind in (("gpt2", False), ("gpt2", True), ("llama", False)) for n_layer in (1, 8))
N_EMBD, N_HEAD, LENGTH, VOCABULARY = 32, 2, 32, 64
STEP_POINTS: dict[DeviceType, float] = {"cpu": 6.0, "cuda": 24.0, "mps": 24.0}
# They are timed in turn, in so many rounds: on a shared host one visit was seen to differ by 40 % from the next.
STEP_ROUNDS: dict[DeviceType, int] = {"cpu": 2, "cuda": 10, "mps": 10}
ADAMW = OptimizerSpec(
    name="adamw", learning_rate=1e-4, min_learning_rate=1e-4, warmup_steps=0, decay_steps=1, schedule="constant",
    weight_decay=0.1, beta1=0.9, beta2=0.95, momentum=0.9, grad_clip=1.0,
)  # fmt: skip
LEAST_STEPS = 3  # of a visit, after one that does not count


def measure_steps(
    precision: Precision, spec: DeviceSpec, for_s: float, read: Callable[[], float]
) -> list[dict[str, Any]]:
    """Times passes and update of tiny models, one after the other as in an eager step.

    On CUDA that is the host's time, which does not wait for a device that has so little to do.

    Args:
        precision: of the steps.
        spec: the device.
        for_s: time for the passes of a model, and as much for its updates, in s.
        read: the host's clock, in s.

    Returns:
        For each `model` (a `ModelShape` as JSON) and `mode` (`forward_backward`, `optimizer_step`) the `seconds`, of
        its rounds' medians the median, or of two the lesser; `n` samples.
    """
    rounds = STEP_ROUNDS[spec.type]
    asked = StepSpec(batch_size=1, precision=precision, execution="eager")
    tokens, steps = np.arange(4 * LENGTH, dtype=np.uint16) % VOCABULARY, []
    for architecture, bias, n_layer in MODELS:
        model = ModelShape(
            architecture=architecture, n_layer=n_layer, n_head=N_HEAD, n_embd=N_EMBD, bias=bias,
            n_inner=default_inner(architecture, N_EMBD), vocab_size=VOCABULARY, sequence_length=LENGTH,
        )  # fmt: skip
        steps.append((model, TrainStep.build(model, asked, ADAMW, spec, tokens, 10, 0), []))
    for _ in range(rounds):
        for _, step, visits in steps:
            visits.append(_visit(step, 2 * for_s / rounds, read))
    return [
        {
            "model": to_json(model), "mode": mode, "precision": precision,
            "seconds": median_low(median(one[place] for one in times) for times in visits),
            "n": sum(len(times) for times in visits),
        }
        for model, _, visits in steps
        for place, mode in enumerate(("forward_backward", "optimizer_step"))
    ]  # fmt: skip


def _visit(step: TrainStep, for_s: float, read: Callable[[], float]) -> list[tuple[float, float]]:
    """Makes steps for some time and tells what passes and update of each but the first took."""
    await_device = (lambda: None) if step.device.type == "cuda" else step.synchronise
    times, started = [], read()
    while len(times) <= LEAST_STEPS or read() - started < for_s:
        start = read()
        step.forward_backward()
        await_device()
        between = read()
        step.optimizer_step()
        await_device()
        times.append((between - start, read() - between))
    step.synchronise()
    return times[1:]
