"""One iteration of nanoGPT's training loop, in a checkout that the person has, written after its `train.py`.

Model, optimizer and their defaults are nanoGPT's own code. The loop is copied in substance, since `train.py` is a
script that trains to an end and prints its times as text: the batch is drawn from a memory map that is opened anew each
time, pinned and sent while the forward pass runs; loss under autocast, a disabled scaler, clipping, AdamW.
"""

import contextlib
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from benchmarks.presets import Preset


def build_iteration(nanogpt: Path, preset: Preset, data: Path, device: str, seed: int) -> Callable[[], Tensor]:
    """Builds nanoGPT's model and optimizer; each call of what is returned makes one optimizer step.

    Args:
        nanogpt: the checkout.
        preset: shapes, optimizer, precision.
        data: `train.bin`, token ids as uint16.
        device: `cuda` or `cpu`.
        seed: of weights and batches.

    Returns:
        The iteration; it gives the loss, a 0-d tensor on the device.
    """
    shape, spec, batch_size = preset.shape, preset.optimizer, preset.batch_size
    T = shape.sequence_length
    model_code = load_model_code(nanogpt)
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[preset.dtype]
    context = contextlib.nullcontext() if device == "cpu" else torch.amp.autocast(device_type=device, dtype=dtype)
    config = model_code.GPTConfig(
        block_size=T,
        vocab_size=shape.vocab_size,
        n_layer=shape.n_layer,
        n_head=shape.n_head,
        n_embd=shape.n_embd,
        dropout=shape.dropout,
        bias=shape.bias,
    )
    model = model_code.GPT(config).to(device)
    scaler = torch.amp.GradScaler(device, enabled=False)
    optimizer = model.configure_optimizers(
        spec.weight_decay, spec.learning_rate, (spec.beta1, spec.beta2), "cuda" if "cuda" in device else "cpu"
    )
    if preset.compiled:
        model = torch.compile(model)

    def get_batch() -> tuple[Tensor, Tensor]:
        tokens = np.memmap(data, dtype=np.uint16, mode="r")
        starts = torch.randint(len(tokens) - T, (batch_size,))
        x = torch.stack([torch.from_numpy(tokens[i : i + T].astype(np.int64)) for i in starts])
        y = torch.stack([torch.from_numpy(tokens[i + 1 : i + 1 + T].astype(np.int64)) for i in starts])
        if device == "cpu":
            return x.to(device), y.to(device)
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)

    batch, done = get_batch(), 0

    def iterate() -> Tensor:
        nonlocal batch, done
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(preset, done)
        with context:
            _, loss = model(*batch)
            loss = loss / 1  # its accumulation, one micro-batch
        batch = get_batch()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), spec.grad_clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if done % preset.log_interval == 0:
            loss.item()  # synchronises, as its logging does
        done += 1
        return loss.detach()

    return iterate


def learning_rate(preset: Preset, step: int) -> float:
    """nanoGPT's `get_lr`."""
    spec = preset.optimizer
    if step < spec.warmup_steps:
        return spec.learning_rate * (step + 1) / (spec.warmup_steps + 1)
    if step > spec.decay_steps:
        return spec.min_learning_rate
    progress = (step - spec.warmup_steps) / (spec.decay_steps - spec.warmup_steps)
    share = 0.5 * (1.0 + math.cos(math.pi * progress))
    return spec.min_learning_rate + share * (spec.learning_rate - spec.min_learning_rate)


def load_model_code(nanogpt: Path) -> ModuleType:
    """Imports nanoGPT's `model.py` without putting its checkout on the path.

    Raises:
        ValueError: no such file.
    """
    path = nanogpt / "model.py"
    if not path.is_file():
        raise ValueError(f"{nanogpt} is no nanoGPT checkout: it has no model.py")
    found = importlib.util.spec_from_file_location("nanogpt_model", path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
