"""Which tokens each step sees: windows of the text, drawn beforehand and gathered where the model computes.

The offsets of all steps are drawn on the CPU from the seed, so every device, precision and execution sees the same
text in the same order, and drawing costs nothing while steps are timed. Tokens and offsets live on the device.
"""

import hashlib

import numpy as np
import torch
from torch import Tensor

_OFFSETS = 1  # sets this stream of random numbers apart from others drawn from the same seed


def draw_offsets(n_tokens: int, sequence_length: int, batch_size: int, n_steps: int, seed: int) -> np.ndarray:
    """Draws where the windows of each step start: uniformly, with replacement, from all places that hold a window.

    A window is T + 1 tokens long: T inputs, and as targets the same shifted by one. numpy draws bounded integers by
    rejection, so no place is likelier than another.

    Args:
        n_tokens: tokens in the split.
        sequence_length: T.
        batch_size: sequences per step, B.
        n_steps: how many steps, N.
        seed: of the run.

    Returns:
        Offsets (N, B) int64.

    Raises:
        ValueError: the split holds no window of T + 1 tokens.
    """
    n_places = n_tokens - sequence_length
    if n_places < 1:
        raise ValueError(
            f"the training split has {n_tokens} tokens: sequence_length {sequence_length} needs at least "
            f"{sequence_length + 1}; take a longer corpus or a shorter sequence_length"
        )
    return np.random.default_rng([seed, _OFFSETS]).integers(n_places, size=(n_steps, batch_size), dtype=np.int64)


def offsets_sha256(offsets: np.ndarray) -> str:
    """Gives the digest of offsets (N, B) as little-endian int64: equal digests mean equal text in equal order."""
    return hashlib.sha256(offsets.astype("<i8").tobytes()).hexdigest()


class Batches:
    """The training text and the windows of every step, resident on the device.

    Args:
        tokens: ids of the training split, 1-D unsigned integers.
        offsets: (N, B) int64, see `draw_offsets`.
        sequence_length: T.
        accumulation: into how many micro-batches of equal size a step's batch is cut, A.
        device: where they live.
    """

    def __init__(
        self, tokens: np.ndarray, offsets: np.ndarray, sequence_length: int, accumulation: int, device: torch.device
    ):
        # One byte a token where that is enough; torch computes little with uint16, so int32 otherwise.
        narrow = np.uint8 if tokens.dtype == np.uint8 else np.int32
        self.tokens = torch.from_numpy(tokens.astype(narrow)).to(device)
        n_steps, batch_size = offsets.shape
        rows = offsets.reshape(n_steps, accumulation, batch_size // accumulation, 1)
        self.offsets = torch.from_numpy(rows).to(device)  # (N, A, B / A, 1)
        self.positions = torch.arange(sequence_length + 1, device=device)  # (T + 1,)

    def allocated_bytes(self) -> int:
        """Bytes that the device's allocator gave for tokens and windows: none on a CPU, where they are numpy's."""
        return 0 if self.tokens.device.type == "cpu" else self.tokens.nbytes + self.offsets.nbytes

    def host_bytes(self) -> int:
        """Bytes of tokens and windows in the host's memory."""
        return self.tokens.nbytes + self.offsets.nbytes if self.tokens.device.type == "cpu" else 0

    def gather(self, cursor: Tensor) -> tuple[Tensor, Tensor]:
        """Gives a step's inputs and targets, each (A, B / A, T) int64.

        `cursor` (1,) int64 is the step's index on the device: reading it there costs no synchronisation.
        """
        windows = self.tokens[self.offsets.index_select(0, cursor)[0] + self.positions]  # (A, B / A, T + 1)
        return windows[..., :-1].long(), windows[..., 1:].long()
