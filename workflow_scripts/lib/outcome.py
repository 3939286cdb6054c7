"""How a measuring process ended: the statuses, and the exceptions by which its code names one of them.

Light on purpose (no torch, no other module of ours): the code that runs inside the process raises these exceptions, the
code that started it reads the status, and both import them from here.
"""

import dataclasses
from typing import Any, Literal, get_args

Status = Literal["ok", "oom", "timeout", "diverged", "killed", "unavailable", "barred", "predicted_oom", "error"]
STATUSES: tuple[str, ...] = get_args(Status)

_REASON_CHARACTERS = 400
_OUT_OF_MEMORY_NAMES = {"MemoryError", "OutOfMemoryError"}
# Messages of allocators that raise a plain RuntimeError: c10's CPU allocator, the CUDA runtime, cuBLAS and cuDNN
# asking for workspace, MPS.
_OUT_OF_MEMORY_TEXTS = (
    "can't allocate memory",
    "not enough memory",
    "cuda error: out of memory",
    "cuda out of memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "mps backend out of memory",
    "std::bad_alloc",
)


class Ended(Exception):
    """An end that the measuring code foresees; the message becomes the record's reason."""

    status: Status = "error"


class Unavailable(Ended):
    """What was asked for does not exist here: no compiler, no such attention backend, no such device."""

    status: Status = "unavailable"


class Diverged(Ended):
    """The loss became NaN or infinite; the message says at which step."""

    status: Status = "diverged"


class Barred(Ended):
    """A correctness probe failed, so nothing may be timed."""

    status: Status = "barred"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a measuring process.

    Attributes:
        status: one of `STATUSES`; `predicted_oom` is what `barring.outsized_outcome` gives: nothing was started then.
        reason: one line for people, empty when `status` is `ok`.
        result: what the function returned; for other statuses the last partial result that it sent, or None.
        peak_process_bytes: largest resident memory of the process (VmHWM on Linux), None where it cannot be known.
        wall_s: seconds from start to end of the process, without the wait for the machine.
        started_at: UTC, ISO 8601.
        ended_at: UTC, ISO 8601.
        start: `fresh` for a new interpreter, `forked` for a fork of one that has torch imported; the latter's peak
            lacks the pages of libraries that only the import touches (seen: 70 MiB, with a CUDA build 250 MiB).
    """

    status: Status
    reason: str
    result: dict[str, Any] | None
    peak_process_bytes: int | None
    wall_s: float
    started_at: str
    ended_at: str
    start: Literal["fresh", "forked"] = "fresh"


def is_out_of_memory(error: BaseException) -> bool:
    """Tells whether `error`, or what it was raised from, is an allocator's refusal on the device or on the host.

    Classes are recognised by name, so that nothing here imports torch.
    """
    seen: BaseException | None = error
    while seen is not None:
        if any(kind.__name__ in _OUT_OF_MEMORY_NAMES for kind in type(seen).__mro__):
            return True
        text = str(seen).lower()
        if isinstance(seen, RuntimeError | OSError) and any(known in text for known in _OUT_OF_MEMORY_TEXTS):
            return True
        seen = seen.__cause__
    return False


def classify(error: BaseException) -> tuple[Status, str]:
    """Gives the status and the one-line reason of an exception that ended a measuring function."""
    if isinstance(error, Ended):
        return error.status, one_line(str(error))
    status: Status = "oom" if is_out_of_memory(error) else "error"
    return status, one_line(f"{type(error).__name__}: {error}")


def one_line(text: str) -> str:
    """Folds white space, and cuts what is too long for a table."""
    folded = " ".join(text.split())
    return folded if len(folded) <= _REASON_CHARACTERS else folded[: _REASON_CHARACTERS - 1] + "…"
