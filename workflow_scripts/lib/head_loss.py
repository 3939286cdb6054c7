"""Head and cross-entropy over a large vocabulary as one operation that touches the logits as seldom as it can.

The logits (N, V) are the largest tensor of a step: 3.3 GB for GPT-2 at 32 × 1,024 tokens in 16 bits. Written as plain
operators they are read for the loss, read again for its gradient, and the gradient is a second tensor as large. But the
gradient of cross-entropy with respect to the logits, softmax − one-hot, is known as soon as the loss is, up to the
factor that the backward pass brings. So one kernel reads each row, and leaves in its place the row's gradient; the
backward pass has only the two matrix products to do, on which that factor is cheap. The idea is Liger Kernel's (Hsu et
al. 2024, arXiv 2410.10989, section 3.2), without its cutting the tokens into chunks, which costs time.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

LARGE_VOCABULARY = 4096  # below it the compiler fuses the plain operators well enough


def head_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Gives the mean cross-entropy of `F.linear(hidden, weight)`, float32, in nats per token.

    Args:
        hidden: (N, C), what the head reads.
        weight: (V, C), the head's matrix.
        targets: (N,) int64.
    """
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        # Here, not inside: the backward pass knows nothing of autocast.
        hidden, dtype = hidden.to(torch.get_autocast_dtype(device)), torch.get_autocast_dtype(device)
    else:
        dtype = hidden.dtype
    with torch.autocast(device, enabled=False):
        return _HeadLoss.apply(hidden, weight, targets, dtype)


def applies(device: torch.device, vocab_size: int) -> bool:
    """Whether `head_loss` is the better way: in a compiled training step on CUDA with a large vocabulary.

    Not with fp16: the gradient of a row would lose its small entries before the loss is scaled.
    """
    if device.type != "cuda" or vocab_size < LARGE_VOCABULARY or not torch.is_grad_enabled():
        return False
    half = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.float16
    return torch.compiler.is_compiling() and not half


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
        weight = weight.to(dtype)
        logits = hidden @ weight.t()  # (N, V)
        losses = cross_entropy_(logits, targets)
        slopes = logits  # what is in that memory now
        ctx.save_for_backward(hidden, weight, slopes)
        return losses.mean()

    @staticmethod
    def backward(ctx, outer: Tensor):
        hidden, weight, slopes = ctx.saved_tensors
        factor = outer / len(slopes)
        for_hidden = ((slopes @ weight).float() * factor).to(hidden.dtype)
        for_weight = (slopes.t() @ hidden).float() * factor
        return for_hidden, for_weight, None, None


# Any strides will do: the compiler pads the rows of a product to whole lines of 128 bytes, and would copy the logits of
# a vocabulary that is no multiple of that for an operation that wants them without.
@torch.library.custom_op(
    "assay::cross_entropy_", mutates_args={"logits"}, device_types="cuda", tags=[torch.Tag.flexible_layout]
)
def cross_entropy_(logits: Tensor, targets: Tensor) -> Tensor:
    """Gives the cross-entropy of each row, (N,) float32, and overwrites `logits` (N, V) with its gradient.

    That is softmax(logits) − one-hot(targets), for each row's own loss.
    """
    from workflow_scripts.lib.cross_entropy_kernel import launch  # Triton exists with CUDA only

    return launch(logits, targets)


@cross_entropy_.register_kernel("cpu")
def _(logits: Tensor, targets: Tensor) -> Tensor:
    """The same in plain operators: what the kernel is compared with."""
    log_softmax = logits.float().log_softmax(-1)
    logits.copy_(log_softmax.exp() - F.one_hot(targets, logits.shape[-1]))
    return -log_softmax.gather(-1, targets[:, None])[:, 0]


@cross_entropy_.register_fake
def _(logits: Tensor, targets: Tensor) -> Tensor:
    return logits.new_empty(len(logits), dtype=torch.float32)
