"""The time of a step before anything of its kind was measured: its operators one by one, at calibrated rates.

Each operator costs what its calibration measured, max(FLOPs / rate, bytes / bandwidth) plus overhead being its physics;
the parts say which of the three it was. Beyond them a step costs what tiny models showed. On CUDA that is the host's
work, which goes on beside the device's: the slower of the two sets the pace, or, captured as a graph, the device alone.
A compiler fuses what lies between products: such operators cost the bytes that are left to move, as a kernel that moves
as many.
"""

import dataclasses
import functools
from statistics import fmean
from typing import Literal

from workflow_scripts.lib.block_memory import element_bytes
from workflow_scripts.lib.operator_rates import Rates
from workflow_scripts.lib.operator_work import (
    LAUNCHES,
    Direction,
    Operator,
    call_bytes,
    flops,
    fused_bytes,
    has_head_loss,
    moved_bytes,
    step_operators,
)
from workflow_scripts.lib.specs import DeviceType, ModelShape, OptimizerSpec, StepSpec

Bound = Literal["launch", "bandwidth", "compute"]
BOUNDS: tuple[Bound, ...] = ("launch", "bandwidth", "compute")
# Of a captured step, counted in the profile that `recordings/interactions` holds: the batch, the learning rate, loss,
# cursor, the scale of clipped gradients.
STEP_KERNELS = 22
# Assume: compiled, a block is about as many kernels whatever its architecture, so that it takes the host this share of
# what blocks take eagerly in the mean, and so much more with biases: each one's gradient is a sum over tokens, kernels
# of its own. A pass takes so many times as long (all three: medians of three runs on H200s, those whose calibration
# timed tiny models in ten rounds). A checkpointed block does again what is its forward pass.
COMPILED_BLOCK, COMPILED_BIAS, COMPILED_PASS, FORWARD_SHARE = 0.6, 1.44, 1.33, 1 / 3
# Assume: beside fused AdamW the optimizers take so many times its time per parameter; they were not calibrated.
OPTIMIZER_TIMES = {"adamw": 1.0, "sgd": 0.6, "adafactor": 4.0, "muon": 1.5}
# What a processor computes rather than moves: exponentials and tangents, which no compiler takes away.
ARITHMETIC = ("gelu", "loss")
NEWTON_SCHULZ_STEPS = 5  # torch.optim.Muon's default


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepCosts:
    """Seconds of a step by what bounds them, and what of them attention and vocabulary take.

    `side_by_side`: the host's launches go on beside the device's work, and the slower of the two sets the pace.
    """

    launch_s: float
    bandwidth_s: float
    compute_s: float
    attention_s: float
    vocabulary_s: float
    side_by_side: bool = False

    @property
    def parts_s(self) -> dict[str, float]:
        return {"launch": self.launch_s, "bandwidth": self.bandwidth_s, "compute": self.compute_s}

    @functools.cached_property
    def sides(self) -> tuple["StepCosts", ...]:
        """The host's and the device's work, each alone, where they go on side by side; else all of it."""
        if not self.side_by_side:
            return (self,)
        idle = {"bandwidth_s": 0.0, "compute_s": 0.0, "attention_s": 0.0, "vocabulary_s": 0.0}
        host = dataclasses.replace(self, side_by_side=False, **idle)
        device = dataclasses.replace(self, side_by_side=False, launch_s=0.0)
        return tuple(side for side in (host, device) if side.total_s > 0)

    @property
    def total_s(self) -> float:
        return max(sum(side.parts_s.values()) for side in self.sides)

    @property
    def bound(self) -> Bound:
        slower = max(self.sides, key=lambda side: side.total_s)
        return max(BOUNDS, key=slower.parts_s.__getitem__)


def step_costs(
    shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec, device_type: DeviceType, rates: Rates
) -> StepCosts:
    """Adds up the operators of one optimizer step."""
    parts = dict.fromkeys(BOUNDS, 0.0)
    attention_s = vocabulary_s = 0.0
    fused = step.execution != "eager"
    overlapped = device_type == "cuda"
    head_loss = has_head_loss(shape, step, device_type)
    for operator in [*step_operators(shape, step), *_newton_schulz(shape, optimizer)]:
        for direction, calls in (("forward", operator.calls), ("backward", operator.backward_calls)):
            alone = device_type == "cpu" and operator.kind in ARITHMETIC
            moved = None if alone else fused_bytes(operator, direction, step, head_loss)
            seconds = calls * _seconds(operator, direction, step, optimizer, rates, moved) if calls else 0.0
            launches = calls * (1 if fused else LAUNCHES[operator.kind][direction == "backward"])
            launch_s = 0.0 if overlapped else min(seconds, launches * rates.operator_s)
            parts["launch"] += launch_s
            parts[_bound(operator, direction, step, rates)] += seconds - launch_s
            attention_s += seconds if operator.kind == "attention" else 0.0
            vocabulary_s += seconds if operator.of_vocabulary else 0.0
    if step.execution == "graphed":
        # These kernels are no operator's; each takes the step from one to the next and at least what the shortest does.
        parts["launch"] = STEP_KERNELS * ((rates.kernel_s or 0.0) + rates.shortest_s)
    else:
        parts["launch"] += _beyond_s(shape, step, optimizer, rates)
    return StepCosts(
        **{f"{name}_s": seconds for name, seconds in parts.items()},
        attention_s=attention_s, vocabulary_s=vocabulary_s,
        side_by_side=overlapped and step.execution != "graphed",
    )  # fmt: skip


def _beyond_s(shape: ModelShape, step: StepSpec, optimizer: OptimizerSpec, rates: Rates) -> float:
    """What a step takes beyond its operators, on CUDA all of the host's time."""
    one, blocks = rates.overhead(shape), shape.n_layer
    pass_s, block_s = one.pass_s, one.pass_block_s
    if step.execution != "eager":
        pass_s = COMPILED_PASS * fmean(each.pass_s for each in rates.overheads)
        block_s = COMPILED_BLOCK * fmean(each.pass_block_s for each in rates.overheads)
        block_s *= COMPILED_BIAS if one.bias else 1.0
    pass_s += blocks * block_s * (1 + FORWARD_SHARE * step.checkpointing)
    update_s = (one.update_s + blocks * one.update_block_s) * OPTIMIZER_TIMES[optimizer.name]
    products = sum(operator.calls for operator in _newton_schulz(shape, optimizer))
    return step.accumulation * pass_s + update_s + products * rates.operator_s


def _seconds(
    operator: Operator,
    direction: Direction,
    step: StepSpec,
    optimizer: OptimizerSpec,
    rates: Rates,
    moved: float | None,
) -> float:
    """One call's time on the device, 0 for what was not measured; with `moved` a kernel's of so many bytes."""
    if moved is not None and rates.knows("residual"):
        return rates.moving_s(moved, element_bytes(step)) if moved else 0.0
    seconds = rates.seconds(operator.kind, direction, operator.dims) if rates.knows(operator.kind) else 0.0
    return seconds * (OPTIMIZER_TIMES[optimizer.name] if operator.kind == "optimizer" else 1.0)


def _bound(operator: Operator, direction: Direction, step: StepSpec, rates: Rates) -> Bound:
    """Whether an operator's work is arithmetic or traffic, by the device's ceilings."""
    arithmetic_s = flops(operator.kind, operator.dims, direction) / rates.flop_per_s
    traffic_s = moved_bytes(operator.kind, operator.dims, direction, element_bytes(step)) / rates.bytes_per_s
    return "compute" if arithmetic_s > traffic_s else "bandwidth"


def _newton_schulz(shape: ModelShape, optimizer: OptimizerSpec) -> list[Operator]:
    """The products by which Muon orthogonalises each matrix of a block (Jordan 2024)."""
    if optimizer.name != "muon":
        return []
    from workflow_scripts.lib.counts import block_matrices

    found = []
    for sides in block_matrices(shape):
        short, long = sorted(sides)
        calls = shape.n_layer * NEWTON_SCHULZ_STEPS
        for dims in ((short, long, short), (short, short, short), (short, short, long)):
            found.append(Operator(kind="linear", dims=dims, calls=calls, backward_calls=0))
    return found


def step_traffic_bytes(shape: ModelShape, step: StepSpec) -> float:
    """Counts the bytes that a step's operators read and write, each tensor once an operator."""
    return sum(
        calls * call_bytes(operator, direction, step)
        for operator in step_operators(shape, step)
        for direction, calls in (("forward", operator.calls), ("backward", operator.backward_calls))
        if calls
    )
