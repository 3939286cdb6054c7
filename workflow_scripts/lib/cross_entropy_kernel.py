"""The kernel behind `head_loss.cross_entropy_`, in Triton. Import it only where there is a GPU."""

import torch
import triton
import triton.language as tl
from torch import Tensor

# The fastest of 16 settings on an H100 at 32,768 rows of 50,304: 2.80 ms, where moving each byte once takes 2.2.
MAX_BLOCK = 16_384
COLUMNS_PER_WARP = 1024


def launch(logits: Tensor, targets: Tensor) -> Tensor:
    """Gives each row's cross-entropy, (N,) float32; `logits` (N, V), with dense rows, become softmax − one-hot."""
    rows, vocab_size = logits.shape
    if logits.stride(1) != 1:
        raise ValueError(f"The rows of logits must be dense, not of stride {logits.stride(1)}")
    losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
    block = min(triton.next_power_of_2(vocab_size), MAX_BLOCK)
    n_warps = max(block // COLUMNS_PER_WARP, 1)
    _cross_entropy[(rows,)](logits, targets, losses, logits.stride(0), V=vocab_size, BLOCK=block, num_warps=n_warps)
    return losses


@triton.jit
def _cross_entropy(logits, targets, losses, stride, V: tl.constexpr, BLOCK: tl.constexpr):
    """One program for each row, which it reads twice: from memory, then while it is still in the L2 cache."""
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * stride
    target = tl.load(targets + row)
    correct = tl.load(start + target).to(tl.float32)  # the sums below end all reading before the first write
    largest = float("-inf")
    total = 0.0  # of exp(x − largest) so far (Milakov and Gimelshein 2018, arXiv 1805.02867, algorithm 3)
    for offset in range(0, V, BLOCK):
        column = offset + tl.arange(0, BLOCK)
        x = tl.load(start + column, column < V, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
        larger = tl.maximum(largest, tl.max(x, 0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(x - larger), 0)
        largest = larger
    log_sum = largest + tl.log(total)
    tl.store(losses + row, log_sum - correct)
    for offset in range(0, V, BLOCK):
        column = offset + tl.arange(0, BLOCK)
        x = tl.load(start + column, column < V, other=0.0, eviction_policy="evict_first").to(tl.float32)
        slope = tl.exp(x - log_sum) - tl.where(column == target, 1.0, 0.0)
        tl.store(start + column, slope.to(logits.dtype.element_ty), column < V)
