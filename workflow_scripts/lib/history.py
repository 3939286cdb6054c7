"""The history of a training: one row a step, as it stands in `metrics.csv` and in checkpoints. Needs no torch."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class StepRow(NamedTuple):
    """One step; its fields are the columns of `metrics.csv`. None is an empty field."""

    step: int  # counts from 1
    tokens: int  # seen so far, this step's included
    elapsed_s: float  # training alone: sum of step times so far, but each process's first, which may have compiled
    loss: float  # of this step's batch, before its update, in nats per token
    learning_rate: float  # of this step's update
    grad_norm: float | None  # global norm before clipping; infinite where fp16 skipped the update
    step_time_s: float  # of this step alone
    val_loss: float | None = None  # after this step's update, in nats per token; None where not evaluated

    def written(self) -> tuple[int | float | None, ...]:
        """The row as it is written: of what each step has, no more digits than a float32 or a clock has."""
        step, tokens, elapsed_s, loss, learning_rate, grad_norm, step_time_s, val_loss = self
        return (
            step, tokens, round(elapsed_s, 7), _digits(loss), _digits(learning_rate, 6), _digits(grad_norm, 6),
            round(step_time_s, 7), val_loss,
        )  # fmt: skip

    def numbers(self) -> list[float]:
        """The row as floats alone, NaN for what is missing."""
        return [math.nan if value is None else float(value) for value in self]

    @classmethod
    def of_numbers(cls, numbers: Sequence[float]) -> "StepRow":
        """The row that `numbers` gave."""
        step, tokens, *others = numbers
        return cls(int(step), int(tokens), *(None if math.isnan(value) else value for value in others))


def _digits(value: float | None, n: int = 7) -> float | None:
    return None if value is None else float(f"{value:.{n}g}")
