"""What a test of isolation trains in a process of its own; torch is imported with it, as with what is measured."""

import os
from pathlib import Path

import torch


def train(arguments, send):
    """A few seeded steps; tells what could differ between a fork and a fresh interpreter."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256))
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(3):
        loss = model(torch.randn(256, 256)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {
        "losses": losses,
        "torch_threads": torch.get_num_threads(),
        "tasks": len(list(Path("/proc/self/task").iterdir())),
        "variable": os.environ["OMP_NUM_THREADS"],
        "folder": os.getcwd(),  # noqa: PTH109
        "stray": os.environ.get("STRAY"),
        "parent": os.getppid(),
        "leader": os.getpgid(0) == os.getpid(),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
    }
