"""What is allocated when, from a trace of allocations and frees: blocks, their names, peaks and a timeline.

A trace is a list of `Event`s in order, and a place in it is told by how many events are before it. Nothing here knows
torch, so a test can write any trace. See `allocation_watch` for where traces and names come from.
"""

import bisect
import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

PARAMETERS, GRADIENTS, STATE, DATA = "parameters", "gradients", "optimizer state", "data"
COPIES, ACTIVATIONS, TEMPORARIES = "weight copies", "activations", "temporaries"
WORKSPACE, OTHER = "workspace", "other"
# What is there all the time stands first, and what comes and goes above it.
CATEGORIES = (PARAMETERS, STATE, DATA, OTHER, GRADIENTS, COPIES, ACTIVATIONS, TEMPORARIES, WORKSPACE)
N_POINTS, N_BLOCKS = 300, 16
_LAYER = re.compile(r"\bblocks\.(\d+)\b")


class Event(NamedTuple):
    """One block that appears, or (negative bytes) goes."""

    address: int
    bytes: int


class Tensor(NamedTuple):
    """What lies in a block: its storage may be larger than it, or serve several tensors."""

    address: int
    storage_bytes: int
    shape: tuple[int, ...]
    dtype: str
    element_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """An operator that ran between two places of the trace, and the tensors that it gave."""

    entered: int
    left: int
    operator: str
    module: str  # path of the innermost module that called it, forward; in a backward pass that whose gradient it is
    of_parameter: bool  # whether it was given a parameter and nothing else to copy
    outputs: tuple[Tensor, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Held:
    """A tensor of a known role, found at a place of the trace."""

    at: int
    role: str
    name: str
    tensor: Tensor


@dataclasses.dataclass(kw_only=True)
class Block:
    """One allocation; `last` is the place of its free, or the end of the trace."""

    first: int
    last: int
    bytes: int
    category: str = ""
    module: str = ""
    operator: str = ""
    tensor: Tensor | None = None
    inside: bool = False  # appeared within the operator and is no output of it


def blocks_of(events: list[Event]) -> dict[int, list[Block]]:
    """Pairs allocations with frees: blocks by address, each list in order. A free of what was never seen is dropped."""
    blocks: dict[int, list[Block]] = defaultdict(list)
    for place, event in enumerate(events):
        held = blocks[event.address]
        if event.bytes > 0:
            held.append(Block(first=place, last=len(events), bytes=event.bytes))
        elif held and held[-1].last == len(events):
            held[-1].last = place
    return blocks


def name_blocks(
    blocks: dict[int, list[Block]], calls: Iterable[Call], held: Iterable[Held], start: int, kept_from: int
) -> list[Block]:
    """Gives each block its category and, where it has one, its name.

    Args:
        blocks: by address.
        calls: operators of the watched pass, in order.
        held: tensors of known roles before and after it.
        start: where the watched pass begins.
        kept_from: where its forward pass ends: what appeared in it and is still there is kept for the backward pass.

    Returns:
        All blocks in the order of their allocation.
    """
    ordered = sorted((block for found in blocks.values() for block in found), key=lambda block: block.first)
    firsts = [block.first for block in ordered]
    for tensor in held:
        block = _at(blocks, tensor.tensor, tensor.at)
        if block is not None:
            block.category, block.module, block.tensor = tensor.role, tensor.name, tensor.tensor
    for call in calls:
        for output in call.outputs:
            block = _at(blocks, output, call.left)
            # The first tensor in a block names it: those after it are views, or were written in its place.
            if block is not None and block.first >= start and not block.operator:
                block.operator, block.inside = call.operator, False
                if not block.category:
                    block.module, block.tensor = call.module, output
                    block.category = COPIES if call.of_parameter else ""
        for block in ordered[bisect.bisect_left(firsts, call.entered) : bisect.bisect_left(firsts, call.left)]:
            if not block.operator:
                block.operator, block.inside = call.operator, True
                block.module = block.module or call.module
    for block in ordered:
        if not block.category:
            block.category = _category(block, start, kept_from)
    return ordered


def _at(blocks: dict[int, list[Block]], tensor: Tensor, place: int) -> Block | None:
    """The block that a tensor lay in at a place; None where the trace has none of that size there."""
    found = next((block for block in reversed(blocks.get(tensor.address, ())) if block.first < place), None)
    return found if found is not None and found.last >= place and tensor.storage_bytes <= found.bytes else None


def _category(block: Block, start: int, kept_from: int) -> str:
    if block.first < start:
        return OTHER
    if block.first < kept_from <= block.last:
        return ACTIVATIONS
    return TEMPORARIES if block.tensor is not None else WORKSPACE


def peak(events: list[Event], start: int, stop: int) -> tuple[int, int]:
    """The largest sum of all bytes so far after any event from `start` up to `stop`, at least that before, and where.

    Returns:
        Bytes, and the place just after the event that reached them.
    """
    total = sum(event.bytes for event in events[:start])
    best, place = total, start
    for n, event in enumerate(events[start:stop], start + 1):
        total += event.bytes
        if total > best:
            best, place = total, n
    return best, place


def alive(blocks: list[Block], place: int) -> list[Block]:
    """The blocks that are there at a place."""
    return [block for block in blocks if block.first < place <= block.last]


def largest(blocks: list[Block]) -> list[dict[str, Any]]:
    """The largest among blocks, those of different layers that are alike in one row.

    Returns:
        Rows, the largest sum first: `category`, `module` (the layer's number as `*`), `layers`, `operator`, `inside`
        (of the operator and no output of it), `shape`, `dtype`, `element_bytes` (None where no tensor is known),
        `bytes` of one, `count`.
    """
    groups: dict[tuple[Any, ...], list[Block]] = defaultdict(list)
    for block in blocks:
        # What is held has a name of its own, and who wrote it is the name of nothing.
        operator = "" if block.category in (PARAMETERS, GRADIENTS, STATE, DATA) else block.operator
        what = None if block.tensor is None else block.tensor[2:]
        key = (block.category, _LAYER.sub("blocks.*", block.module), operator, block.inside, what, block.bytes)
        groups[key].append(block)
    rows = []
    for (category, module, operator, inside, what, size), found in groups.items():
        layers = sorted({int(number) for block in found for number in _LAYER.findall(block.module)})
        shape, dtype, element_bytes = what or (None, None, None)
        rows.append({
            "category": category, "module": module, "layers": layers, "operator": operator, "inside": inside,
            "shape": None if shape is None else list(shape), "dtype": dtype, "element_bytes": element_bytes,
            "bytes": size, "count": len(found),
        })  # fmt: skip
    return sorted(rows, key=lambda row: (-row["bytes"] * row["count"], row["module"], row["operator"]))[:N_BLOCKS]


def by_category(blocks: list[Block]) -> dict[str, int]:
    """Bytes of each of `CATEGORIES` that occurs."""
    sums = {name: sum(block.bytes for block in blocks if block.category == name) for name in CATEGORIES}
    return {name: size for name, size in sums.items() if size}


def timeline(blocks: list[Block], start: int, stop: int, marked: Iterable[int]) -> dict[str, list[int]]:
    """Bytes of each category over a stretch of the trace, thinned to some hundred places without losing a peak.

    Args:
        blocks: all blocks, with their categories.
        start: where it begins.
        stop: where it ends.
        marked: places that are kept whatever they hold.

    Returns:
        `place`, counted from `start`, and a list of the same length for each of `CATEGORIES` that occurs.
    """
    n = stop - start + 1
    changes: dict[str, list[int]] = {name: [0] * (n + 1) for name in CATEGORIES}
    for block in blocks:
        if block.first < stop and block.last >= start:
            change = changes[block.category]
            change[max(block.first + 1 - start, 0)] += block.bytes
            change[min(block.last + 1 - start, n)] -= block.bytes
    sums: dict[str, list[int]] = {}
    for name, change in changes.items():
        total = 0
        sums[name] = [total := total + value for value in change[:n]]
    totals = [sum(values) for values in zip(*sums.values(), strict=True)]
    width = math.ceil(n / N_POINTS)
    kept = {0, n - 1, *(place - start for place in marked if start <= place <= stop)}
    kept |= {max(range(i, min(i + width, n)), key=totals.__getitem__) for i in range(0, n, width)}
    places = sorted(kept)
    return {"place": places} | {name: [sums[name][i] for i in places] for name in CATEGORIES if any(sums[name])}
