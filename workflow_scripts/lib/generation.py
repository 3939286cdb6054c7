"""Text from a trained model: seeded, token by token, with the context that the model was trained for."""

import torch
from torch import Tensor, nn


@torch.no_grad()
def generate(
    decoder: nn.Module,
    prompt: list[int],
    n_tokens: int,
    *,
    sequence_length: int,
    device: torch.device | str,
    seed: int,
    temperature: float = 1.0,
    top_k: int | None = None,
) -> list[int]:
    """Continues a prompt, in the precision of the surrounding autocast.

    The decoder sees windows of 1, 2, 4 … tokens and of the whole context, the rest of each filled with zeros, which a
    causal model does not look at: for a new size CUDA may plan anew (cuDNN's attention in 16 bits: 14 to 23 s of an
    H200 for 256 sizes).

    Every random number is drawn on the CPU beforehand and picks its token through the cumulative distribution, so all
    devices see the same numbers (their texts may differ all the same: a rounding can tip a token).

    Args:
        decoder: a causal model of tokens (1, T) to logits (1, T, V); left in the mode in which it came.
        prompt: ids to start from, at least one.
        n_tokens: how many to add.
        sequence_length: the model's context: each token sees at most that many before it.
        device: where the decoder is.
        seed: seeds the draws.
        temperature: divides the logits; 0 takes the likeliest token.
        top_k: keep only that many likeliest tokens; None keeps all.

    Returns:
        The added ids, without the prompt.

    Raises:
        ValueError: an empty prompt, or a temperature or top_k out of range.
    """
    if not prompt:
        raise ValueError("the prompt has no tokens: give at least one")
    if temperature < 0 or (top_k is not None and top_k < 1):
        raise ValueError(f"temperature is {temperature}, top_k {top_k}: at least 0, and at least 1 or None")
    draws = torch.rand(n_tokens, generator=torch.Generator().manual_seed(seed)).to(device)
    n_all = len(prompt) + n_tokens
    ids = torch.zeros(1, n_all + sequence_length, dtype=torch.int64, device=device)
    ids[0, : len(prompt)] = torch.tensor(prompt, device=device)
    was_training = decoder.training
    decoder.eval()
    try:
        for i in range(n_tokens):
            end = len(prompt) + i
            seen = min(end, sequence_length)
            size = min(sequence_length, 1 << (seen - 1).bit_length())
            logits = decoder(ids[:, end - seen : end - seen + size])[0, seen - 1].float()  # (V,)
            ids[0, end] = pick(logits, draws[i], temperature, top_k)
    finally:
        decoder.train(was_training)
    return ids[0, len(prompt) : n_all].tolist()


def pick(logits: Tensor, draw: Tensor, temperature: float, top_k: int | None) -> Tensor:
    """Chooses a token from logits (V,) by a uniform number in [0, 1), without waiting for the device."""
    if temperature == 0:
        return logits.argmax()
    if top_k is not None and top_k < len(logits):
        logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -torch.inf)
    cumulative = (logits / temperature).softmax(dim=0).cumsum(dim=0)  # (V,), its last within rounding of 1
    return (cumulative <= draw * cumulative[-1]).sum().clamp(max=len(logits) - 1)
