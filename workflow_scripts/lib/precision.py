"""The four precisions: which formats matrix products compute in, and what that asks of the loss.

`fp32` is IEEE single precision. `tf32` keeps float32 tensors, but products round their inputs to 10 bits of mantissa.
`bf16` and `fp16` are torch's autocast: weights, gradients and optimizer state stay float32. `fp16` scales the loss, so
that small gradients do not vanish, and skips a step whose gradients overflow.
"""

import contextlib

import torch

from workflow_scripts.lib.outcome import Unavailable
from workflow_scripts.lib.specs import Execution, Precision

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
_AMPERE = (8, 0)  # the first compute capability with TF32 (NVIDIA A100 whitepaper)


def set_precision(precision: Precision, device: torch.device) -> None:
    """Sets how float32 matrix products are computed in this process, and checks that the setting took.

    Raises:
        Unavailable: the device has no such precision; nothing is substituted for it.
    """
    if precision == "tf32" and (device.type != "cuda" or torch.cuda.get_device_capability(device) < _AMPERE):
        raise Unavailable(f"tf32 exists on NVIDIA GPUs from compute capability 8.0 on, not on {device}")
    # `torch.backends.cuda.matmul.fp32_precision = "tf32"` alone leaves the older flags contradicting it, which torch
    # answers with an error as soon as the compiler reads one. This call sets both, on every backend.
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    asked, found = ("tf32" if precision == "tf32" else "ieee"), product_precision(device)
    if found != asked:
        raise RuntimeError(f"float32 products were set to {asked} and read back as {found}")


def product_precision(device: torch.device) -> str:
    """Reads back how float32 matrix products are computed: `ieee` or `tf32` (`bf16` where someone set that)."""
    backend = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    return backend.matmul.fp32_precision


def autocast(precision: Precision, device: torch.device) -> contextlib.AbstractContextManager:
    """Gives a fresh context in which a forward pass of that precision runs."""
    if precision not in AUTOCAST:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=AUTOCAST[precision])


def loss_scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler:
    """Gives the scaler of the loss; for all but `fp16` one that does nothing."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")


def residual_dtype(precision: Precision, execution: Execution) -> torch.dtype | None:
    """Gives the type of the residual stream, None where it is torch's choice.

    Autocast keeps the stream in float32, and so do we, eagerly. Once compiled, normalisations and additions do little
    but move it, so that half the width is half their time; llm.c trains GPT-2 so. bfloat16 has float32's range.
    """
    return torch.bfloat16 if precision == "bf16" and execution != "eager" else None
