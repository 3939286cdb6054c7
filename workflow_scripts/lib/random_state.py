"""The states of the generators that dropout draws from: the CPU's and the device's."""

import contextlib
from collections.abc import Iterator

import torch

States = dict[str, torch.Tensor | None]


def random_state(device: torch.device) -> States:
    """Reads the generators' states; tensors on the CPU, `device` None where that is the CPU itself."""
    states: States = {"cpu": torch.get_rng_state(), "device": None}
    if device.type == "cuda":
        states["device"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["device"] = torch.mps.get_rng_state()
    return states


def set_random_state(device: torch.device, states: States) -> None:
    """Puts the generators where `random_state` found them."""
    torch.set_rng_state(states["cpu"].cpu())
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["device"].cpu(), device)
    elif device.type == "mps":
        torch.mps.set_rng_state(states["device"].cpu())


@contextlib.contextmanager
def kept_random_state(device: torch.device) -> Iterator[None]:
    """Runs a block of code that leaves the generators where they were."""
    states = random_state(device)
    try:
        yield
    finally:
        set_random_state(device, states)
