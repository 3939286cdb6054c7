"""How torch's CUDA allocator is set where something is measured, and what it counts as allocated. Without torch.

As it comes it cuts a free block only where more than 1 MiB is left; else what is left goes with the tensor, and counts.
So the count of a step depends on what was freed before its tensors were made, most with matrices of 1 to 10 MiB
(`benchmarks/prediction_memory.py` with either setting). Segments that can grow are cut anywhere (`should_split` in
c10/cuda/CUDACachingAllocator.cpp), lose less memory to holes, and are what torchtitan trains with, too.
"""

import os

MIB = 2**20
GRAIN = 512
VARIABLE = "PYTORCH_ALLOC_CONF"
_NAMES = (VARIABLE, "PYTORCH_CUDA_ALLOC_CONF")


def allocator_settings() -> str:
    """Gives the settings of the allocator: a person's own, or segments that grow."""
    return next((os.environ[name] for name in _NAMES if os.environ.get(name)), "expandable_segments:True")


def allocated_bytes(size: int) -> int:
    """Gives the bytes counted for a tensor of this size in bytes."""
    return -(-size // GRAIN) * GRAIN
