"""A prepared corpus as measuring processes see it: the ids of its splits, their lengths, and the loss per byte of text.

`tokens.bin` holds the ids of the train split, then those of the validation split, little-endian and without a header;
`corpus.json` says where each split starts and stops (in tokens), in which dtype, and from which text they came.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def load_tokens(tokens_path: Path, corpus: Mapping[str, Any], split: str) -> np.ndarray:
    """Maps the ids of one split into memory, read-only, without reading the file.

    Args:
        tokens_path: `tokens.bin`.
        corpus: what `corpus.json` holds.
        split: `train` or `validation`.

    Returns:
        `(n_tokens,)` ids in the dtype of the file.

    Raises:
        ValueError: the corpus has no such split, or the file is not as long as the corpus says.
    """
    if split not in corpus["splits"]:
        raise ValueError(f"split {split!r} is none of {', '.join(corpus['splits'])}")
    dtype = np.dtype(corpus["dtype"]).newbyteorder("<")
    expected_bytes, size_bytes = corpus["n_tokens"] * dtype.itemsize, Path(tokens_path).stat().st_size
    if size_bytes != expected_bytes:
        raise ValueError(
            f"{tokens_path} has {size_bytes} bytes, its corpus.json says {expected_bytes}: delete both, then run again"
        )
    start, stop = corpus["splits"][split]["start"], corpus["splits"][split]["stop"]
    return np.memmap(tokens_path, dtype, mode="r", offset=start * dtype.itemsize, shape=(stop - start,))


def count_tokens(corpus: Mapping[str, Any]) -> dict[str, int]:
    """Counts the tokens of each split of a prepared corpus."""
    return {name: split["stop"] - split["start"] for name, split in corpus["splits"].items()}


def check_splits(n_tokens: Mapping[str, int], sequence_length: int) -> None:
    """Checks that one sequence and its targets, which are the same tokens one later, fit into every split.

    Args:
        n_tokens: tokens of each split; with the character tokenizer, its characters.
        sequence_length: the context length, in tokens.

    Raises:
        ValueError: a split has fewer than `sequence_length + 1` tokens.
    """
    needed = sequence_length + 1
    short = [f"the {name} split has {n} tokens" for name, n in n_tokens.items() if n < needed]
    if short:
        raise ValueError(
            f"corpus: {' and '.join(short)}, but sequence_length {sequence_length} needs {needed} "
            "(sequence_length + 1): use a longer text, a shorter sequence_length or another corpus.validation_fraction"
        )


def bits_per_byte(loss_nats_per_token: float, tokens: int, n_bytes: int) -> float:
    """Turns a mean loss per token into bits per byte of text, in which different tokenizers can be compared.

    bits per byte = loss × tokens / (ln 2 × bytes): the nats of the whole split, in bits, spread over its bytes. (As in
    Gao et al. 2020, "The Pile", section 3.1.)

    Args:
        loss_nats_per_token: mean cross-entropy of the split's tokens, natural logarithm.
        tokens: tokens of that split.
        n_bytes: bytes of that split's text in UTF-8 (`splits.*.n_bytes` of `corpus.json`).
    """
    # Assume: a loss averaged over sampled windows stands for the whole split, whose ratio of tokens to bytes is used.
    return loss_nats_per_token * tokens / (math.log(2) * n_bytes)
