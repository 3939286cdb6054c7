"""What a forward pass really does: its data types and its attention kernel, read off the operators as they run.

A treatment is believed when it is seen here, not when it was asked for.
"""

import contextlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

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
        `logits_dtype`, `attention_backend`.
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
        linear.register_forward_hook(note("linear_output_dtype")),
        norm.register_forward_hook(note("norm_output_dtype")),
    ]
    devices = [tokens.device] if tokens.device.type == "cuda" else []
    kernels = _AttentionKernels()
    try:
        with torch.random.fork_rng(devices), kernels, context:
            dtypes["logits_dtype"] = decoder(tokens).dtype
    finally:
        for hook in hooks:
            hook.remove()
    found = {key: str(dtype).removeprefix("torch.") for key, dtype in dtypes.items()}
    parameter_dtype = str(next(decoder.parameters()).dtype).removeprefix("torch.")
    return {**found, "parameter_dtype": parameter_dtype, "attention_backend": "+".join(sorted(kernels.seen)) or "math"}
