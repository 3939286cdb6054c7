"""Dropout that draws its random bits apart, four elements to a 64-bit number.

torch.compile fuses dropout into the kernel beside it, and there draws a number for each element: Philox gives four at a
time, and three are thrown away. Where the rest of the kernel only moves bytes, the drawing takes longest: 36 µs for
residual, normalisation and dropout of 16,384 × 384 in 16 bits on an H200, where 17 µs are enough if it only reads bits.
So torch's own generator fills a tensor with whole 64-bit numbers first, which the kernels read as 16 bits an element.
Few bits an element are no new idea: FlashAttention decides by 8, see github.com/Dao-AILab/flash-attention/issues/993.
"""

import torch
from torch import Tensor, nn

LEVELS = 2**16  # values of the bits that decide about one element


class Dropout(nn.Dropout):
    """torch's dropout; where it is compiled for CUDA, with bits drawn apart.

    There an element is kept with probability round((1 − p) · 2^16) / 2^16, and what is kept is divided by just that.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Drops elements of x, of any shape."""
        if self.training and self.p > 0 and draws_apart(x.device):
            return drop(x, self.p)
        return super().forward(x)


def draws_apart(device: torch.device) -> bool:
    """Whether bits are drawn apart here: in what is being compiled for CUDA."""
    return device.type == "cuda" and torch.compiler.is_compiling()


def drop(x: Tensor, p: float) -> Tensor:
    """Sets elements of x to 0 with probability p and scales the others, so that the mean stays."""
    n_kept = round((1 - p) * LEVELS)
    return torch.where(random_bits(x) < n_kept - LEVELS // 2, x * (LEVELS / n_kept if n_kept else 0.0), 0)


# Tagged as random, so that the compiler never takes two draws for one.
@torch.library.custom_op("assay::random_bits", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def random_bits(x: Tensor) -> Tensor:
    """Gives 16 random bits for each element of x, as int16 of its shape, from the device's default generator."""
    whole = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device)
    return whole.random_(-(2**63), None).view(torch.int16)[: x.numel()].view(x.shape)  # no upper bound: all 64 bits


@random_bits.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=torch.int16, device=x.device)
