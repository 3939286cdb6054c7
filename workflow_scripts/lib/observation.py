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
        `residual_dtype` (after the first block), `logits_dtype`, `attention_backend`; `n_layer` (blocks that ran),
        `n_embd`, `n_head`, `sequence_length`, `dropout` (in force), and `checkpointing`: whether the first block kept
        nothing of its own for the backward pass.
    """
    dtypes: dict[str, torch.dtype] = {}
    ran: list[int] = []  # the width of what each block put out
    kept: list[int] = []  # tensors kept for the backward pass, at the beginning and the end of the first block
    n_kept = 0

    def keep(tensor: Tensor) -> None:  # a hook that returned an output of its own node would keep it for ever
        nonlocal n_kept
        n_kept += 1

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
        decoder.blocks[0].register_forward_pre_hook(lambda *_: kept.append(n_kept)),
        decoder.blocks[0].register_forward_hook(lambda *_: kept.append(n_kept)),
        *(block.register_forward_hook(lambda *called: ran.append(called[-1].shape[-1])) for block in decoder.blocks),
    ]
    kernels = _AttentionKernels()
    try:
        saving = torch.autograd.graph.saved_tensors_hooks(keep, lambda nothing: nothing)
        with kept_random_state(tokens.device), saving, kernels, context:
            dtypes["logits_dtype"] = decoder(tokens).dtype
    finally:
        for hook in hooks:
            hook.remove()
    found = {key: str(dtype).removeprefix("torch.") for key, dtype in dtypes.items()}
    parameter_dtype = str(next(decoder.parameters()).dtype).removeprefix("torch.")
    return {
        **found,
        "parameter_dtype": parameter_dtype,
        "attention_backend": "+".join(sorted(kernels.seen)) or "math",
        "n_layer": len(ran),
        "n_embd": ran[0],
        "n_head": decoder.blocks[0].attention.n_head,
        "sequence_length": tokens.shape[1],
        "dropout": decoder.dropout.p if decoder.training else 0.0,
        "checkpointing": kept[0] == kept[1],
    }


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
