"""What a cell or a run is asked to do: the frozen values that the config resolves to and measuring processes receive.

Everything here is plain data. A spec travels to a measuring process as JSON (`to_json`) and becomes typed again there
(`from_json`), so a key that nobody reads or a value of the wrong type stops the job instead of being ignored.
"""

import dataclasses
import json
from typing import Any, Literal, TypeVar

import dacite

Architecture = Literal["gpt2", "llama"]
DeviceType = Literal["cpu", "cuda", "mps"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Execution = Literal["eager", "compiled", "graphed"]
Mode = Literal["forward", "forward_backward", "optimizer", "step"]
Attention = Literal["auto", "math", "flash", "efficient", "cudnn"]
OptimizerName = Literal["adamw", "sgd", "adafactor", "muon"]
Schedule = Literal["cosine", "constant"]

SHORT_SEQUENCE = 128  # tokens; up to here attention on a CPU is faster as plain products, see `attention_on`

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The shape of a decoder, complete: equal shapes have equal parameter counts.

    `sequence_length` is the context length; for `gpt2` it sizes the table of learned positions. `n_inner` is the width
    of the MLP's hidden layer. `bias` concerns `gpt2` only (linear and normalisation biases); `llama` has none.
    """

    architecture: Architecture
    n_layer: int
    n_head: int
    n_embd: int
    n_inner: int
    vocab_size: int
    sequence_length: int
    dropout: float = 0.0
    bias: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceSpec:
    """A local device: `id` names it in paths (`cpu`, `cuda0`, `mps`), `threads` are torch's intra-op threads."""

    id: str
    type: DeviceType
    threads: int
    index: int | None = None

    @property
    def torch_name(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSpec:
    """One optimizer step: `batch_size` sequences, processed as `accumulation` micro-batches of equal size."""

    batch_size: int
    precision: Precision
    execution: Execution
    accumulation: int = 1
    attention: Attention = "auto"
    checkpointing: bool = False

    def attention_on(self, device_type: DeviceType, sequence_length: int) -> Attention:
        """Gives the attention to ask torch for; `auto` leaves it the choice, but where its choice is known to be slow.

        On a CPU torch always takes its fused kernel. Over few positions, plain products are faster as soon as they are
        compiled, or in 16 bits, where that kernel's backward pass took two thirds of a step (bf16, on a Xeon with AMX).
        """
        short = device_type == "cpu" and sequence_length <= SHORT_SEQUENCE
        if self.attention == "auto" and short and (self.execution == "compiled" or self.precision in ("bf16", "fp16")):
            return "math"
        return self.attention


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerSpec:
    """The optimizer and its learning rate over steps: linear warm-up, then `schedule` down to `min_learning_rate`.

    `decay_steps` counts from step 0 and includes the warm-up. `grad_clip` bounds the global gradient norm; 0 turns
    clipping off (the norm is computed all the same).
    """

    name: OptimizerName
    learning_rate: float
    min_learning_rate: float
    warmup_steps: int
    decay_steps: int
    schedule: Schedule
    weight_decay: float
    beta1: float
    beta2: float
    momentum: float
    grad_clip: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureSpec:
    """When a cell has been sampled enough: see `timing.sample_steps`.

    Sampling stops when the 95 % interval of the median is narrower than `target_interval` (relative, full width) with
    at least `min_samples` warm samples, or when `max_seconds` have passed. `timeout_s` bounds the whole process.
    """

    min_samples: int
    target_interval: float
    max_seconds: float
    timeout_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellSpec:
    """One configuration to be timed, in a process of its own.

    `name` is its model's, `process` numbers repeats of the same cell from 1; `base` is the id that repeats share.
    Repeats are `fresh` processes: forked ones share one layout of memory, and would hide what it costs.
    """

    id: str
    name: str
    base: str
    device: DeviceSpec
    model: ModelShape
    step: StepSpec
    optimizer: OptimizerSpec
    mode: Mode
    measure: MeasureSpec
    process: int
    fresh: bool
    seed: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemorySpec:
    """The step whose memory is measured, in processes of its own in which nothing is timed; `id` is the cell's."""

    id: str
    device: DeviceSpec
    model: ModelShape
    step: StepSpec
    optimizer: OptimizerSpec
    timeout_s: float
    seed: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training to its end: `name` is the role or model trained, `treatment` the change (or `baseline`).

    `levels` tells the treatment by factor, for the analysis: `baseline` where a factor is left as it is.
    """

    id: str
    device: DeviceSpec
    name: str
    treatment: str
    levels: dict[str, str]
    model: ModelShape
    step: StepSpec
    optimizer: OptimizerSpec
    n_steps: int
    eval_every_steps: int
    eval_windows: int
    checkpoint_every_s: float
    sample_tokens: int
    sample_temperature: float
    timeout_s: float
    seed: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfileSpec:
    """Which steps of which model are profiled: `n_steps` of them after `warmup_steps`."""

    device: DeviceSpec
    name: str
    model: ModelShape
    step: StepSpec
    optimizer: OptimizerSpec
    warmup_steps: int
    n_steps: int
    timeout_s: float
    seed: int


def to_json(spec: Any) -> dict[str, Any]:
    """Turns a spec into plain JSON values."""
    return dataclasses.asdict(spec)


def from_json(kind: type[T], values: dict[str, Any]) -> T:
    """Builds a spec of `kind` from plain JSON values; a whole number becomes a float where the spec wants one.

    Raises:
        dacite.DaciteError: a key is missing or unknown, or a value has the wrong type.
    """
    return dacite.from_dict(kind, values, dacite.Config(strict=True, cast=[float, tuple]))


def canonical(values: Any) -> str:
    """Prints JSON values in the one spelling that is compared, digested and given to rules as their `spec`."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
