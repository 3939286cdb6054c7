"""What fits into a device: by prediction the largest batch and context of each model, and what ran of it.

A prediction is checked where the grid has cells near the border: one that ran must not be larger than what was said to
fit, one that ran out of memory must be.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from workflow_scripts.lib.counts import count_parameters
from workflow_scripts.lib.fits import N_RATES, Room, needed_bytes
from workflow_scripts.lib.specs import ModelShape, OptimizerSpec, StepSpec, from_json

ROOM_COLUMNS = (
    "device model n_params mode precision execution attention sequence_length batch_size limit_bytes needed_bytes fits "
    "largest_batch largest_batch_checkpointed largest_context ran_batch failed_batch checked record"
).split()
HOLDS, WRONG, HALF, OPEN = "both sides agree", "refuted", "one side agrees", "no cell near"
NEAR = 2  # a cell within this factor of the border says something of it
MOST = 1 << 17  # sequences, or tokens of one; nobody asks for more

Member = tuple[dict[str, Any], str]
Members = list[Member]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Work:
    """A model in one way of computing it, at the smallest batch and its context that the grid has."""

    model: ModelShape
    step: StepSpec
    optimizer: OptimizerSpec
    mode: str

    def needed(self, where: Room, **changes: Any) -> int:
        """Bytes with some of batch_size, checkpointing and sequence_length changed."""
        length = changes.pop("sequence_length", self.model.sequence_length)
        model = dataclasses.replace(self.model, sequence_length=length)
        return needed_bytes(where, model, dataclasses.replace(self.step, **changes), self.optimizer, N_RATES, self.mode)


def room_rows(records: Iterable[Member], where: Room, peaks: dict[str, float]) -> list[dict[str, Any]]:
    """One row for each model, pass, precision, execution and context of one device's cells.

    Args:
        records: the cells' records with their paths.
        where: the device's memory; a device that does not tell how much it has gives no rows.
        peaks: peak allocated memory by cell, in bytes, where it was measured.
    """
    if where.limit_bytes is None:
        return []
    groups: dict[tuple[Any, ...], Members] = {}
    for record, path in records:
        cell, step = record["spec"], record["spec"]["step"]
        if cell["process"] == 1:
            key = (cell["name"], cell["mode"], step["precision"], step["execution"], step["attention"])
            groups.setdefault((*key, cell["model"]["sequence_length"]), []).append((record, path))
    return [_row(key, members, where, peaks) for key, members in groups.items()]


def _row(key: tuple[Any, ...], members: Members, where: Room, peaks: dict[str, float]) -> dict[str, Any]:
    first, path = min(members, key=lambda member: member[0]["spec"]["step"]["batch_size"])
    cell = first["spec"]
    work = _Work(
        model=from_json(ModelShape, cell["model"]), step=from_json(StepSpec, cell["step"]),
        optimizer=from_json(OptimizerSpec, cell["optimizer"]), mode=cell["mode"],
    )  # fmt: skip
    limit = where.limit_bytes or 0

    def fits(**changes: Any) -> bool:
        return work.needed(where, **changes) <= limit

    largest = _largest(lambda n: fits(batch_size=n))
    ran, failed = _ends(members, where, peaks)
    needed = work.needed(where)
    names = ("model", "mode", "precision", "execution", "attention", "sequence_length")
    return dict(zip(names, key, strict=True)) | {
        "device": cell["device"]["id"],
        "n_params": count_parameters(work.model).total,
        "batch_size": work.step.batch_size,
        "limit_bytes": limit,
        "needed_bytes": needed,
        "fits": needed <= limit,
        "largest_batch": largest,
        "largest_batch_checkpointed": _largest(lambda n: fits(batch_size=n, checkpointing=True)),
        "largest_context": _largest(lambda n: fits(sequence_length=n)),
        "ran_batch": ran,
        "failed_batch": failed,
        "checked": _checked(largest, ran, failed),
        "record": path,
    }


def _largest(fits: Callable[[int], bool], most: int = MOST) -> int:
    """The largest whole number up to `most` that fits, 0 if none does; what fits only shrinks with size."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle <= most and fits(middle) else (low, middle)
    return low


def _ends(members: Members, where: Room, peaks: dict[str, float]) -> tuple[int | None, int | None]:
    """The largest batch that ran, and the smallest that did not fit.

    Under a cap of the config's, which nothing enforces, a cell counts by its measured peak, if there is one.
    """
    ran, failed = [], []
    for record, _ in members:
        batch, peak = record["spec"]["step"]["batch_size"], peaks.get(record["id"])
        if record["status"] == "oom":
            failed.append(batch)
        elif record["status"] == "ok" and not (where.capped and peak is None):
            (ran if peak is None or peak <= where.limit_bytes else failed).append(batch)
    return max(ran, default=None), min(failed, default=None)


def _checked(largest: int, ran: int | None, failed: int | None) -> str:
    if (ran is not None and ran > largest) or (failed is not None and failed <= largest):
        return WRONG
    near = (ran is not None and ran * NEAR >= largest) + (failed is not None and failed <= largest * NEAR)
    return (OPEN, HALF, HOLDS)[near]
