"""Room for the frames of Python's functions, so that no call has to ask the system for memory.

CPython, from 3.11 on, keeps the frames of a thread in chunks of 16 KiB. A call whose frame does not fit in what is left
of a chunk gets a new one from the system and gives it back when it returns: 5 µs, where a call takes 0.1. Compiled
steps on GPUs meet that: torch.compile writes one function for a whole backward pass, with a variable for each buffer,
and calls from it a function of Python for each kernel. Where the frame of the large one nearly fills a chunk, as with
about 25 layers, each of a thousand launches pays. `benchmarks/frames.py` times calls, and steps of so many layers.
Later releases of 3.13 and 3.14 keep a chunk: https://github.com/python/cpython/pull/145789.

A function may ask for a larger frame than it needs. It then gets a chunk of its own, with room for what it calls.
"""

from types import FunctionType

# A chunk has space for 2,048 values, or twice that and so on until a frame and 1,000 values more fit in. For a frame of
# so many it has space for 131,000, of which half are left: enough for hundreds of layers.
FRAME_VALUES = 66_000


def roomy(function: FunctionType) -> FunctionType:
    """Makes a function's frame so large that those of all functions called from it fit in its chunk; a decorator."""
    function.__code__ = function.__code__.replace(co_stacksize=FRAME_VALUES)
    return function
