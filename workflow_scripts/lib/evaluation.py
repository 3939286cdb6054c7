"""Validation loss on fixed windows: the same text for every run of a study, whatever its batch size, seed or device.

Windows are chosen once, evenly spaced over the validation split, by arithmetic alone. Their digest stands in each
record, so that two losses can be compared only where it is equal.
"""

import dataclasses
import hashlib

import numpy as np
import torch
from torch import nn


@dataclasses.dataclass(frozen=True, kw_only=True)
class Windows:
    """W windows of the validation split: `starts` (W,) int64, `tokens` (W, T + 1) int64, `sha256` of both."""

    starts: np.ndarray
    tokens: np.ndarray
    sha256: str

    @property
    def n_tokens(self) -> int:
        """How many tokens are predicted in one evaluation."""
        return self.tokens.shape[0] * (self.tokens.shape[1] - 1)


def choose_windows(tokens: np.ndarray, n_windows: int, sequence_length: int) -> Windows:
    """Spaces windows evenly over a split, the first at its start and the last at its end.

    Windows overlap where the split is shorter than all of them together; no two start at the same token.

    Args:
        tokens: ids of the whole validation split, 1-D.
        n_windows: W, at least 1.
        sequence_length: T, tokens predicted in each window; a window holds T + 1.

    Raises:
        ValueError: the split is too short for that many windows.
    """
    n_places = len(tokens) - sequence_length
    if not 1 <= n_windows <= n_places:
        raise ValueError(
            f"eval_windows is {n_windows}: the validation split of {len(tokens)} tokens has room for 1 to "
            f"{max(n_places, 0)} windows of {sequence_length}; lower eval_windows or raise validation_fraction"
        )
    starts = np.arange(n_windows, dtype=np.int64) * (n_places - 1) // max(n_windows - 1, 1)
    rows = np.stack([tokens[start : start + sequence_length + 1] for start in starts]).astype(np.int64)
    digest = hashlib.sha256(starts.astype("<i8").tobytes() + rows.astype("<i8").tobytes())
    return Windows(starts=starts, tokens=rows, sha256=digest.hexdigest())


@torch.no_grad()
def validation_loss(
    decoder: nn.Module,
    windows: Windows,
    *,
    device: torch.device | str,
    chunk: int,
) -> float:
    """Mean loss over all windows in nats per token, without dropout, in the precision of the surrounding autocast.

    Args:
        decoder: a model with `loss(tokens, targets)`; left in the mode, training or not, in which it came.
        windows: what to predict.
        device: where the decoder is.
        chunk: windows evaluated at once. The training's micro-batch is a good one: without gradients it needs less
            memory than the training step did, so evaluation never sets the peak. It changes rounding, nothing else.

    Returns:
        The mean, accumulated in float64. NaN or infinite where the model is.
    """
    was_training = decoder.training
    decoder.eval()
    sums = []
    try:
        for rows in torch.from_numpy(windows.tokens).split(chunk):
            rows = rows.to(device)  # (chunk, T + 1)
            sums.append((decoder.loss(rows[:, :-1], rows[:, 1:]), len(rows)))
    finally:
        decoder.train(was_training)
    # The only synchronisation: all chunks were queued before the first is read.
    return sum(float(mean) * n for mean, n in sums) / len(windows.starts)
