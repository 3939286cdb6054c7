"""Token files for the benchmarks, in the form of nanoGPT's `train.bin`: ids as uint16, nothing else."""

from pathlib import Path

import numpy as np

N_RANDOM_TOKENS = 2_000_000


def write_characters(text: Path, vocab_size: int, train: Path, validation: Path | None = None) -> int:
    """Writes a text's characters as nanoGPT's `prepare.py` does: nine tenths to train on, the rest held out.

    Returns:
        How many tokens there are to train on.

    Raises:
        SystemExit: the text has more different characters than the model has embeddings.
    """
    characters = text.read_text(encoding="utf-8")
    vocabulary = {character: i for i, character in enumerate(sorted(set(characters)))}
    if len(vocabulary) > vocab_size:
        raise SystemExit(f"{text} has {len(vocabulary)} different characters: more than {vocab_size}")
    ids = np.array([vocabulary[c] for c in characters], dtype=np.uint16)
    n_train = int(len(ids) * 0.9)
    ids[:n_train].tofile(train)
    if validation is not None:
        ids[n_train:].tofile(validation)
    return n_train


def write_random(vocab_size: int, train: Path) -> int:
    """Writes random ids, always the same; returns how many. Not zeros: a GPU's clock depends on its data."""
    np.random.default_rng(0).integers(vocab_size, size=N_RANDOM_TOKENS).astype(np.uint16).tofile(train)
    return N_RANDOM_TOKENS
