"""Shapes of models that many know by name, complete with vocabulary, context and biases.

Sources: GPT-2, Radford et al. 2019, table 2 (with the head counts of the released models); nanoGPT's
config/train_shakespeare_char.py; Llama, Touvron et al. 2023 (arXiv 2302.13971, table 2, with the MLP widths of the
released models).
"""

from typing import Any

_GPT2 = {"architecture": "gpt2", "vocab_size": 50257, "sequence_length": 1024}
_LLAMA = {"architecture": "llama", "vocab_size": 32000, "sequence_length": 2048}

KNOWN_SHAPES: dict[str, dict[str, Any]] = {
    "gpt2-124m": {**_GPT2, "n_layer": 12, "n_head": 12, "n_embd": 768},
    "gpt2-355m": {**_GPT2, "n_layer": 24, "n_head": 16, "n_embd": 1024},
    "gpt2-774m": {**_GPT2, "n_layer": 36, "n_head": 20, "n_embd": 1280},
    "gpt2-1558m": {**_GPT2, "n_layer": 48, "n_head": 25, "n_embd": 1600},
    "shakespeare-char": {"architecture": "gpt2", "n_layer": 6, "n_head": 6, "n_embd": 384, "vocab_size": 65,
                         "sequence_length": 256, "dropout": 0.2, "bias": False},
    "llama-7b": {**_LLAMA, "n_layer": 32, "n_head": 32, "n_embd": 4096, "n_inner": 11008},
    "llama-13b": {**_LLAMA, "n_layer": 40, "n_head": 40, "n_embd": 5120, "n_inner": 13824},
}  # fmt: skip
