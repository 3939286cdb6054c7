"""What NVIDIA's libraries and torch's kernels take of a GPU's memory beside a step's tensors, without torch.

What is not known of a GPU is assumed, as each property says.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from workflow_scripts.lib.cuda_allocator import MIB

# Threads of a multiprocessor; of a block that sums over rows, and of a warp; values that each of its threads sums
# (aten/src/ATen/native/cuda/Reduce.cuh).
THREADS_EACH, SUMMING_THREADS, WARP, FEWEST_VALUES, MOST_VALUES = 2048, 128, 32, 16, 256
VECTOR = 4  # elements that such a thread reads at once
CUBLASLT_WORKSPACE = MIB  # kept from torch's allocator, as cuBLAS's are


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU by its name and compute capability (`9.0`), as torch tells them; None where nobody does."""

    name: str | None = None
    compute_capability: str | None = None

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "Gpu":
        """Takes `name` and `compute_capability`, of a record's `environment` or of a row of devices.csv."""
        return cls(name=found.get("name") or None, compute_capability=found.get("compute_capability") or None)

    @property
    def workspace_bytes(self) -> int:
        """What each cuBLAS handle keeps for each stream, from torch's allocator; of an unknown GPU the smaller.

        Source: aten/src/ATen/cuda/CublasHandlePool.cpp.
        """
        hopper = self.compute_capability is not None and int(self.compute_capability.split(".")[0]) >= 9
        return 32 * MIB if hopper else 8_519_680

    @property
    def cache_bytes(self) -> int:
        """The second-level cache, as torch tells it of an A100, an H100 and an H200; of others 0."""
        hopper = 60 * MIB if self.name is not None and "H200" in self.name else 50 * MIB
        return {"8.0": 40 * MIB, "9.0": hopper}.get(self.compute_capability or "", 0)

    @property
    def multiprocessors(self) -> int:
        """How many there are, of an A100, an H100 and an H200; of others as many as of an H100."""
        return {"8.0": 108}.get(self.compute_capability or "", 132)

    def sum_bytes(self, n_rows: int, size: int) -> int:
        """What summing rows takes beside its result, as for the gradient of a bias: what each block found, in float32.

        Threads stand beside one another by columns, above one another by rows. What is left to each is split among
        blocks: as many as run at once, if that leaves each thread from `FEWEST_VALUES` to `MOST_VALUES`.

        Args:
            n_rows: that are summed.
            size: of each, and of the result.
        """
        wide = min(_power_of_two(max(size // VECTOR, 1)), WARP)
        high = min(_power_of_two(n_rows), SUMMING_THREADS // wide)
        values, beside = -(-n_rows // high), -(-size // (VECTOR * wide))
        running = self.multiprocessors * THREADS_EACH // (wide * high)
        if values < MOST_VALUES or beside > running:
            return 0
        blocks = max(min(-(-running // beside), -(-values // FEWEST_VALUES)), -(-values // MOST_VALUES))
        return 4 * size * blocks * VECTOR * wide if blocks > 1 else 0


UNKNOWN = Gpu()


def _power_of_two(number: int) -> int:
    """The largest that is not above a number of at least 1."""
    return 1 << (number.bit_length() - 1)
