"""The learning rate of every step, from the optimizer's spec alone. Nothing here knows torch."""

import numpy as np

from workflow_scripts.lib.specs import OptimizerSpec


def learning_rates(optimizer: OptimizerSpec, n_steps: int) -> np.ndarray:
    """Gives the learning rate of each step, (n_steps,) float64; index 0 is the first step."""
    return rates_at(optimizer, np.arange(n_steps, dtype=np.float64))


def rates_at(optimizer: OptimizerSpec, step: np.ndarray) -> np.ndarray:
    """Gives the learning rates of some steps by their index, 0 for the first.

    Linear warm-up to `learning_rate` over `warmup_steps`, never starting at 0; then `constant`, or half a cosine
    (SGDR, Loshchilov and Hutter 2017, equation 5) that reaches `min_learning_rate` at `decay_steps` and stays there.
    The numbers are nanoGPT's `get_lr`.
    """
    peak, floor, warmup = optimizer.learning_rate, optimizer.min_learning_rate, optimizer.warmup_steps
    if optimizer.schedule == "cosine":
        progress = np.clip((step - warmup) / max(optimizer.decay_steps - warmup, 1), 0.0, 1.0)
        rates = floor + 0.5 * (1.0 + np.cos(np.pi * progress)) * (peak - floor)
    else:
        rates = np.full(len(step), peak)
    return np.where(step < warmup, peak * (step + 1) / (warmup + 1), rates)
