"""What to train on a device in a given time: the largest model of usual proportions that sees enough tokens in it.

A model sees `tokens_per_parameter` tokens for each of its parameters (about 20 make the best of a fixed amount of
computing: Hoffmann et al. 2022, arXiv 2203.15556, table 3). Its batch is the smallest whose predicted throughput lies
within `ways.WITHIN` of the best, among batches that fit into memory and leave `MIN_STEPS` optimizer steps.
"""

import dataclasses
import math
from typing import Any, Protocol

from workflow_scripts.lib.counts import count_parameters
from workflow_scripts.lib.forecast import Forecast
from workflow_scripts.lib.selection import USUAL_PROPORTIONS
from workflow_scripts.lib.specs import ModelShape, OptimizerSpec, StepSpec
from workflow_scripts.lib.study import complete_shape
from workflow_scripts.lib.ways import Way, enough

HEAD_SIZES = (64, 32)  # of GPT-2, which attention kernels are made for; and of widths that it does not divide
BATCHES = tuple(2**power for power in range(11))
WIDTH = 32  # widths are multiples of this
MIN_STEPS = 500  # fewer steps leave no room for a warm-up and a schedule


class Forecasts(Protocol):
    """What predicts a step: `forecast.Forecaster`."""

    def knows(self, device: str, step: StepSpec) -> bool: ...

    def forecast(self, device: str, shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec) -> Forecast: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """What is asked of one device: `base` has architecture, bias and dropout; `limit_bytes` is its memory's end."""

    device: str
    base: dict[str, Any]
    vocab_size: int
    sequence_length: int
    step: StepSpec
    optimizer: OptimizerSpec
    train_s: float
    tokens_per_parameter: float
    limit_bytes: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch size of a model: what a step takes, and whether it is allowed."""

    batch_size: int
    step_time_s: float
    low_s: float | None
    high_s: float | None
    bound: str | None
    throughput_tokens_per_s: float
    peak_bytes: int
    fits: bool
    leaves_steps: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A model with the batch to train it at, the tokens it sees, and what that takes; `batches` are those tried."""

    shape: ModelShape
    step: StepSpec
    n_tokens: int
    train_s: float
    batch: Batch
    batches: tuple[Batch, ...]


def recommend(task: Task, way: Way, forecasts: Forecasts) -> Plan | str:
    """Finds the largest model for a device, or says in words why there is none."""
    planner = _planner(task, way, forecasts)
    if planner is None:
        return f"no cost model of {task.step.precision} {task.step.execution} steps was fitted here"
    best: Plan | None = None
    for n_embd in range(2 * WIDTH, 1 << 20, WIDTH):
        shallow, deep = math.ceil(n_embd / USUAL_PROPORTIONS[1]), n_embd // USUAL_PROPORTIONS[0]
        found = planner(n_embd, shallow)
        if found is None or found.train_s > task.train_s:
            break  # wider ones are larger still
        while shallow < deep:  # the deepest that ends in time: time rises with depth
            middle = (shallow + deep + 1) // 2
            plan = planner(n_embd, middle)
            if plan is not None and plan.train_s <= task.train_s:
                shallow, found = middle, plan
            else:
                deep = middle - 1
        if best is None or _size(found) > _size(best):
            best = found
    if best is None:
        return (
            f"even 1 layer, {2 * WIDTH} wide, does not see {task.tokens_per_parameter:g} tokens per parameter in "
            f"{task.train_s / 60:g} minutes here"
        )
    return best


def _size(plan: Plan) -> int:
    return count_parameters(plan.shape).non_embedding


def _planner(task: Task, way: Way, forecasts: Forecasts) -> Any:
    """Gives the function that plans a width and a depth; None where times cannot be predicted.

    A way without a cost model of its own takes the time of the task's step, divided by how much faster it was measured.
    """
    asked = dataclasses.replace(task.step, precision=way.precision, execution=way.execution, accumulation=1)
    own = forecasts.knows(task.device, asked)
    if not own and not forecasts.knows(task.device, task.step):
        return None
    timed = asked if own else dataclasses.replace(task.step, accumulation=1)
    speed = 1.0 if own else way.ratio

    def plan(n_embd: int, n_layer: int) -> Plan | None:
        head_size = next(size for size in HEAD_SIZES if n_embd % size == 0)
        model = {**task.base, "n_layer": n_layer, "n_head": n_embd // head_size, "n_embd": n_embd}
        shape = complete_shape(model, task.vocab_size, task.sequence_length)
        n_tokens = math.ceil(task.tokens_per_parameter * count_parameters(shape).total)
        batches = []
        for batch_size in BATCHES:
            step = dataclasses.replace(timed, batch_size=batch_size)
            expected = forecasts.forecast(task.device, shape, step, task.optimizer)
            peak_bytes = expected.peak_bytes
            if not own:  # its memory is known all the same
                step = dataclasses.replace(step, precision=way.precision, execution=way.execution)
                peak_bytes = forecasts.forecast(task.device, shape, step, task.optimizer).peak_bytes
            tokens = batch_size * task.sequence_length
            low_s, high_s = (None if end is None else end / speed for end in (expected.low_s, expected.high_s))
            batch = Batch(
                batch_size=batch_size, step_time_s=expected.step_time_s / speed, low_s=low_s, high_s=high_s,
                bound=expected.bound, throughput_tokens_per_s=speed * tokens / expected.step_time_s,
                peak_bytes=peak_bytes, fits=task.limit_bytes is None or peak_bytes <= task.limit_bytes,
                leaves_steps=batch_size == 1 or n_tokens >= MIN_STEPS * tokens,
            )  # fmt: skip
            batches.append(batch)
        allowed = {one.batch_size: one.throughput_tokens_per_s for one in batches if one.fits and one.leaves_steps}
        if not allowed:
            return None
        chosen = next(batch for batch in batches if batch.batch_size == enough(allowed))
        return Plan(
            shape=shape, step=dataclasses.replace(asked, batch_size=chosen.batch_size), n_tokens=n_tokens,
            train_s=n_tokens / chosen.throughput_tokens_per_s, batch=chosen, batches=tuple(batches),
        )  # fmt: skip

    return plan
