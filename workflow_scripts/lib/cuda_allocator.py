"""What torch's CUDA caching allocator counts as allocated for tensors of given sizes. Nothing here imports torch.

Its rules (c10/cuda/CUDACachingAllocator.cpp): sizes are rounded up to 512 bytes. A tensor of up to 1 MiB shares a
segment with others, and takes no more than that. A larger one gets the smallest free block that holds it, or the start
of a new segment: 20 MiB for less than 10 MiB, else its own size in multiples of 2 MiB. What is left of the block stays
free for others where it is more than 1 MiB; else it goes with the tensor, and is counted as allocated.
"""

import bisect
import functools

MIB = 2**20
GRAIN = 512
SMALL, LARGE = MIB, 10 * MIB  # up to which a tensor shares segments of 2 MiB, and segments of 20 MiB
SEGMENT, SEGMENT_GRAIN = 20 * MIB, 2 * MIB


@functools.lru_cache(maxsize=1024)
def allocated_bytes(sizes: tuple[int, ...]) -> int:
    """Gives the bytes counted for tensors of these sizes in bytes, made in this order in segments of their own."""
    total, free = 0, []  # free blocks in ascending order
    for size in sizes:
        wanted = -(-size // GRAIN) * GRAIN
        if wanted <= SMALL:
            total += wanted
            continue
        fitting = bisect.bisect_left(free, wanted)
        block = free.pop(fitting) if fitting < len(free) else _segment_bytes(wanted)
        if block - wanted > SMALL:
            bisect.insort(free, block - wanted)
            block = wanted
        total += block
    return total


def _segment_bytes(wanted: int) -> int:
    return SEGMENT if wanted < LARGE else -(-wanted // SEGMENT_GRAIN) * SEGMENT_GRAIN
