"""The memory of a step in closed form, against the allocations of the real one, phase by phase."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.test_counts import shape
from tests.tiny_run import ADAMW, CPU
from workflow_scripts.lib import cell
from workflow_scripts.lib.gpu import Gpu
from workflow_scripts.lib.memory_model import N_RATES, estimate_memory
from workflow_scripts.lib.memory_probe import trace_on_cpu
from workflow_scripts.lib.specs import ModelShape, StepSpec
from workflow_scripts.lib.step import TrainStep

COMPILED_CHECKPOINTS = {"execution": "compiled", "checkpointing": True}
PLAIN = StepSpec(batch_size=4, precision="fp32", execution="eager")
SGD, MOMENTUM = (dataclasses.replace(ADAMW, name="sgd", momentum=momentum) for momentum in (0.0, 0.9))
MUON, ADAFACTOR = dataclasses.replace(ADAMW, name="muon", momentum=0.95), dataclasses.replace(ADAMW, name="adafactor")
SHORT = {"n_head": 4, "n_embd": 64, "sequence_length": 128}  # on a CPU attention is plain products here
WIDE, LONG, WORDY = {"n_embd": 128}, {"n_embd": 64, "sequence_length": 256}, {"n_embd": 64, "vocab_size": 4000}

ROWS = {"vocab_size": 2048, "sequence_length": 32}  # the peak is where the embedding's gradient is made
TABLE = {"n_layer": 1, "n_embd": 64, "sequence_length": 16, "vocab_size": 8192}  # whose gradient is the peak


def measured(of: ModelShape, step: StepSpec, optimizer, device=CPU) -> dict[str, int]:
    """The largest sum of all that torch's allocator has handed out, in each phase of a steady step, in bytes."""
    tokens = np.zeros(of.sequence_length + 1, dtype=np.uint8)
    arguments = (of, step, optimizer, device, tokens, N_RATES, 1)
    _, found = trace_on_cpu(lambda: TrainStep.build(*arguments), torch.device("cpu"))
    return found["phases"]


@pytest.mark.parametrize(
    ("of", "optimizer", "step"),
    [
        (shape("gpt2", **LONG), ADAMW, {}),
        (shape("gpt2", **WORDY), ADAMW, {}),
        (shape("gpt2", **LONG, dropout=0.1), ADAMW, {}),
        (shape("gpt2", n_layer=6, **LONG), SGD, {"checkpointing": True}),
        (shape("gpt2", 4, 4, **LONG, dropout=0.1), SGD, {"checkpointing": True}),
        (shape("gpt2", n_layer=4, **WIDE), ADAMW, {"accumulation": 4}),
        (shape("gpt2", **LONG), ADAMW, {"precision": "bf16"}),
        (shape("gpt2", n_layer=4, n_embd=256), MOMENTUM, {"batch_size": 1}),
        (shape("gpt2", **SHORT), ADAMW, {"precision": "bf16"}),
        (shape("gpt2", **SHORT), ADAMW, {"precision": "bf16", "execution": "compiled"}),
        (shape("gpt2", **TABLE), SGD, {"precision": "bf16", "execution": "compiled", "batch_size": 1}),
        (shape("gpt2", 1, 4, 128, **ROWS), SGD, {"execution": "compiled", "batch_size": 2}),
        # As many tokens as the model is wide: all gradients in 16 bits and in 32.
        (shape("gpt2", 4, sequence_length=32, **WIDE), ADAMW, {"precision": "bf16", "execution": "compiled"}),
        # The last block's scores, their softmax and what dropout leaves of it, each in a tensor of its own.
        (shape("gpt2", **LONG, dropout=0.1), ADAMW, {"precision": "bf16", "execution": "compiled"}),
        # The gradient of the head's copy in 16 bits, turned into float32 while all blocks have theirs.
        (shape("gpt2", 8, sequence_length=16, **WORDY), SGD, {"precision": "fp16", "batch_size": 8, "accumulation": 8}),
        (shape("gpt2", n_layer=4, **LONG), ADAMW, COMPILED_CHECKPOINTS),
        (shape("gpt2", n_layer=4, **LONG, dropout=0.1), SGD, COMPILED_CHECKPOINTS),
        (shape("llama", n_layer=4, **LONG), ADAMW, COMPILED_CHECKPOINTS | {"attention": "math", "precision": "bf16"}),
        (shape("gpt2", n_layer=4, **WIDE), ADAMW, COMPILED_CHECKPOINTS | {"accumulation": 4}),
        # The last matrix has its gradient when its input's is gone.
        (shape("gpt2", n_layer=1, n_embd=256, sequence_length=128), SGD, COMPILED_CHECKPOINTS),
        (shape("llama", n_layer=2, n_embd=256, sequence_length=64), SGD, COMPILED_CHECKPOINTS | {"attention": "math"}),
        (shape("gpt2", **WORDY), SGD, {"execution": "compiled"}),
        (shape("gpt2", sequence_length=512, **WORDY), SGD, {"execution": "compiled", "precision": "bf16"}),
        (shape("gpt2", sequence_length=512, **WORDY), SGD, {"execution": "compiled", "attention": "math"}),
        (shape("llama", **LONG), ADAMW, {}),
        (shape("llama", **WORDY), SGD, {"accumulation": 2}),
        (shape("llama", **LONG), ADAMW, {"attention": "math"}),
        (shape("llama", **LONG, dropout=0.1), MOMENTUM, {"precision": "bf16"}),
        (shape("llama", n_layer=2, n_head=1, n_embd=64, sequence_length=64, dropout=0.1), SGD, {"batch_size": 8}),
        (shape("llama", n_layer=6, **LONG), ADAMW, {"precision": "bf16", "checkpointing": True}),
        (shape("llama", n_embd=64, sequence_length=8), MUON, {"batch_size": 1}),
        (shape("llama", **WORDY), MUON, {"batch_size": 1}),
        (shape("gpt2", **WORDY), MUON, {"batch_size": 1, "precision": "fp16"}),
        (shape("gpt2", **WORDY), ADAFACTOR, {"batch_size": 1}),
    ],
)
def test_memory_is_that_of_the_real_step(of, optimizer, step):
    step = dataclasses.replace(PLAIN, **step)
    estimate = estimate_memory(of, step, optimizer, "cpu", threads=CPU.threads)
    phases = measured(of, step, optimizer)
    # A processor that multiplies bf16 packs what Muon multiplies, which is no tensor of torch's.
    packed = 0.05 if optimizer is MUON else 0.01
    assert estimate.peak_bytes == pytest.approx(max(phases.values()), rel=packed)
    assert estimate.phases == pytest.approx(phases, rel=0.05 if not step.checkpointing else 0.15)


def test_each_thread_has_something_of_its_own_in_fused_attention():
    of, step = shape("gpt2", n_embd=32, sequence_length=1024), dataclasses.replace(PLAIN, batch_size=1)
    few, many = CPU, dataclasses.replace(CPU, threads=4)
    peaks = [max(measured(of, step, SGD, device).values()) for device in (few, many)]
    said = [estimate_memory(of, step, SGD, "cpu", threads=device.threads).peak_bytes for device in (few, many)]
    assert said == pytest.approx(peaks, rel=0.01)
    assert said[1] > 1.3 * said[0]


def test_with_few_tokens_gelus_output_is_there_beside_its_gradient():
    torch._dynamo.reset()  # else the cases above count against its limit of compilations
    of = shape("gpt2", 2, 4, 256, sequence_length=192, dropout=0.1)
    step = dataclasses.replace(PLAIN, batch_size=1, execution="compiled")
    said = estimate_memory(of, step, SGD, "cpu", threads=CPU.threads).peak_bytes
    assert said == pytest.approx(max(measured(of, step, SGD).values()), rel=0.03)


def test_the_parts_add_up():
    for architecture in ("gpt2", "llama"):
        for step in (PLAIN, dataclasses.replace(PLAIN, accumulation=2, precision="bf16")):
            for device in ("cpu", "cuda", "mps"):
                estimate = estimate_memory(shape(architecture), step, ADAMW, device)
                assert estimate.peak_bytes == sum(estimate.at_peak.values()) == max(estimate.phases.values())
                assert estimate.peak_bytes == max(estimate.moments.values())
                assert list(estimate.phases) == ["forward", "backward", "optimizer"]


def test_a_part_of_the_step_takes_no_more_than_the_whole():
    forward, both, update, whole = (
        estimate_memory(shape(), PLAIN, ADAMW, "cpu", mode=mode).peak_bytes
        for mode in ("forward", "forward_backward", "optimizer", "step")
    )
    assert forward < both < whole
    # Its state is made when activations are gone: the peak is that of the passes, or of the update.
    assert both == update
    few = estimate_memory(shape(), dataclasses.replace(PLAIN, batch_size=1), ADAMW, "cpu", mode="optimizer")
    assert few.peak_bytes == few.moments["optimizer"] > few.phases["backward"]


def test_a_step_keeps_as_many_learning_rates_as_a_cell_has_batches():
    assert N_RATES == cell.N_BATCHES


def test_more_of_anything_takes_no_less_memory():
    base = {"n_layer": 3, "n_head": 4, "n_embd": 64, "n_inner": 256, "vocab_size": 500, "sequence_length": 64}
    step = dataclasses.replace(PLAIN, precision="bf16")
    for architecture in ("gpt2", "llama"):
        for device in ("cpu", "cuda", "mps"):
            small = estimate_memory(shape(architecture, **base), step, ADAMW, device).peak_bytes
            for key in base:
                larger = shape(architecture, **base | {key: 2 * base[key]})
                assert estimate_memory(larger, step, ADAMW, device).peak_bytes >= small
            twice = dataclasses.replace(step, batch_size=8)
            assert estimate_memory(shape(architecture, **base), twice, ADAMW, device).peak_bytes > small


def test_what_else_lives_on_the_device_is_added():
    alone, beside = (estimate_memory(shape(), PLAIN, ADAMW, "cuda", resident_bytes=size) for size in (0, 10**6))
    assert beside.peak_bytes == alone.peak_bytes + 10**6
    hopper = estimate_memory(shape(), PLAIN, ADAMW, "cuda", gpu=Gpu(compute_capability="9.0"))
    assert hopper.peak_bytes - alone.peak_bytes == hopper.at_peak["workspace"] - alone.at_peak["workspace"] > 10**7
