"""What a forward pass really does: its data types and its attention kernel, read off the operators as they run.

A treatment is believed when it is seen here, not when it was asked for.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from workflow_scripts.lib.outcome import Unavailable
from workflow_scripts.lib.random_state import kept_random_state
from workflow_scripts.lib.specs import Attention

_NO_KERNEL = ("available kernel", "viable backend")  # in torch's message when the asked attention is ruled out

# Part of the operator's name -> the backend's name in `StepSpec.attention`. No such operator means that attention was
# decomposed into products and a softmax: `math`.
_ATTENTION = {
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_efficient_attention": "efficient",
    "_scaled_dot_product_cudnn_attention": "cudnn",
    "_scaled_dot_product_attention_math_for_mps": "math",
    "_scaled_dot_product_fused_attention_overrideable": "overrideable",
}


class _AttentionKernels(TorchDispatchMode):
    """Notes which attention operators are called."""

    def __init__(self):
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        self.seen |= {backend for part, backend in _ATTENTION.items() if part in name and "backward" not in name}
        return func(*args, **(kwargs or {}))


def observe_forward(decoder: nn.Module, tokens: Tensor, context: contextlib.AbstractContextManager) -> dict[str, Any]:
    """Runs one forward pass of the plain module and reports what came out of its parts.

    Gradients are recorded as in training, since the choice of the attention kernel depends on them. Random state is
    left as it was. Synchronises; not for timed code.

    Args:
        decoder: a `Decoder`.
        tokens: (B, T) int64.
        context: the precision's autocast.

    Returns:
        `parameter_dtype`, `linear_output_dtype` and `norm_output_dtype` (the first of each in the model),
        `residual_dtype` (after the first block), `logits_dtype`, `attention_backend`.
    """
    dtypes: dict[str, torch.dtype] = {}

    def note(key: str):
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            dtypes[key] = output.dtype

        return hook

    blocks = list(decoder.blocks.modules())
    linear = next(module for module in blocks if isinstance(module, nn.Linear))
    norm = next(module for module in blocks if isinstance(module, nn.LayerNorm | nn.RMSNorm))
    hooks = [
        decoder.blocks[0].register_forward_hook(note("residual_dtype")),
        linear.register_forward_hook(note("linear_output_dtype")),
        norm.register_forward_hook(note("norm_output_dtype")),
    ]
    kernels = _AttentionKernels()
    try:
        with kept_random_state(tokens.device), kernels, context:
            dtypes["logits_dtype"] = decoder(tokens).dtype
    finally:
        for hook in hooks:
            hook.remove()
    found = {key: str(dtype).removeprefix("torch.") for key, dtype in dtypes.items()}
    parameter_dtype = str(next(decoder.parameters()).dtype).removeprefix("torch.")
    return {**found, "parameter_dtype": parameter_dtype, "attention_backend": "+".join(sorted(kernels.seen)) or "math"}


def require_attention(asked: Attention, observe: Callable[[], dict[str, Any]]) -> None:
    """Checks that attention by the asked backend exists for this device, precision, dropout and shape.

    Args:
        asked: the backend; `auto` is always there.
        observe: gives what `observe_forward` found.

    Raises:
        Unavailable: torch has no such kernel here, or took another.
    """
    if asked == "auto":
        return
    try:
        found = observe()["attention_backend"]
    except RuntimeError as error:
        if any(part in str(error) for part in _NO_KERNEL):
            raise Unavailable(f"no {asked} attention for this device, precision, dropout and head size") from error
        raise
    if found != asked:
        raise Unavailable(f"{asked} attention was asked for, and {found} ran")
