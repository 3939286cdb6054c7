"""The configurations in which Assay's step is compared with nanoGPT's, and what Assay is to reach in each."""

import dataclasses

from workflow_scripts.lib.specs import DeviceType, Execution, ModelShape, OptimizerSpec, Precision

GPT2_VOCABULARY = 50_304  # 50,257 rounded up to a multiple of 64, as in nanoGPT's own configuration
CHARACTERS = 65  # different characters of tinyshakespeare


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One way for Assay to take the same step. `target` is the least throughput ratio wanted, None where none is."""

    precision: Precision
    execution: Execution
    target: float | None = None

    @property
    def name(self) -> str:
        return f"{self.precision} {self.execution}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset:
    """A model, its batch, and how nanoGPT runs it.

    Attributes:
        dtype: nanoGPT's `dtype`. On a CPU its `train.py` ignores that and computes in float32.
        compiled: nanoGPT's `compile`.
        log_interval: nanoGPT reads the loss back to the host every so many steps.
        targets_of_best: least ratio wanted of the fastest case; its loss must be checked apart (`learning.py`).
    """

    device: DeviceType
    shape: ModelShape
    batch_size: int
    optimizer: OptimizerSpec
    dtype: str
    compiled: bool
    log_interval: int
    cases: tuple[Case, ...]
    target_of_best: float | None = None

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.shape.sequence_length


def _shape(n_layer: int, n_head: int, n_embd: int, sequence_length: int, vocab_size: int, dropout: float) -> ModelShape:
    return ModelShape(
        architecture="gpt2",
        n_layer=n_layer,
        n_head=n_head,
        n_embd=n_embd,
        n_inner=4 * n_embd,
        vocab_size=vocab_size,
        sequence_length=sequence_length,
        dropout=dropout,
        bias=False,
    )


def _adamw(learning_rate: float, warmup_steps: int, decay_steps: int, beta2: float) -> OptimizerSpec:
    """nanoGPT's optimizer: it differs between its configurations in these four only."""
    return OptimizerSpec(
        name="adamw",
        learning_rate=learning_rate,
        min_learning_rate=learning_rate / 10,
        warmup_steps=warmup_steps,
        decay_steps=decay_steps,
        schedule="cosine",
        weight_decay=0.1,
        beta1=0.9,
        beta2=beta2,
        momentum=0.9,
        grad_clip=1.0,
    )


PRESETS: dict[str, Preset] = {
    # nanoGPT's README, "I only have a macbook": 2,000 steps, loss about 1.88.
    "cpu": Preset(
        device="cpu",
        shape=_shape(4, 4, 128, 64, CHARACTERS, dropout=0.0),
        batch_size=12,
        optimizer=_adamw(1e-3, 100, 2_000, 0.99),
        dtype="float32",
        compiled=False,
        log_interval=1,
        cases=(
            Case(precision="fp32", execution="compiled", target=1.15),
            Case(precision="fp32", execution="eager"),
            Case(precision="bf16", execution="compiled"),
            Case(precision="bf16", execution="eager"),
        ),
        target_of_best=1.4,
    ),
    # config/train_shakespeare_char.py: 5,000 steps, best validation loss 1.4697.
    "shakespeare_char": Preset(
        device="cuda",
        shape=_shape(6, 6, 384, 256, CHARACTERS, dropout=0.2),
        batch_size=64,
        optimizer=_adamw(1e-3, 100, 5_000, 0.99),
        dtype="bfloat16",
        compiled=True,
        log_interval=10,
        cases=(Case(precision="bf16", execution="graphed", target=3.0), Case(precision="bf16", execution="compiled")),
    ),
    # train.py's own defaults but for the batch.
    "gpt2_124m": Preset(
        device="cuda",
        shape=_shape(12, 12, 768, 1024, GPT2_VOCABULARY, dropout=0.0),
        batch_size=32,
        optimizer=_adamw(6e-4, 2_000, 600_000, 0.95),
        dtype="bfloat16",
        compiled=True,
        log_interval=1,
        cases=(Case(precision="bf16", execution="graphed", target=1.10), Case(precision="bf16", execution="compiled")),
    ),
    "gpt2_1.5b": Preset(
        device="cuda",
        shape=_shape(48, 25, 1600, 1024, GPT2_VOCABULARY, dropout=0.0),
        batch_size=8,
        optimizer=_adamw(6e-4, 2_000, 600_000, 0.95),
        dtype="bfloat16",
        compiled=True,
        log_interval=1,
        cases=(Case(precision="bf16", execution="graphed", target=1.05),),
    ),
}
