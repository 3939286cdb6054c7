"""One measurement at a time on a machine: a lock that every measuring job of every user and every workflow respects."""

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

# Lines for the person at the terminal; `job.run_job` decides where that is.
TERMINAL = "assay.terminal"
_LOCK_NAME = "assay-measuring.lock"
_POLL_S = 0.5  # a waiting job must not disturb the one that measures
_FOLDER_VARIABLE = "ASSAY_RUNTIME_DIR"


def runtime_folder() -> Path:
    """A folder of this machine that all its users can write to: `ASSAY_RUNTIME_DIR`, /tmp, or Python's choice.

    `TMPDIR` comes last, since it differs between users (macOS) and jobs (schedulers), and then locks nobody out.
    """
    stated = os.environ.get(_FOLDER_VARIABLE)
    if stated:
        return Path(stated)
    shared = Path("/tmp")
    return shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())


@contextlib.contextmanager
def machine_lock(*, check: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds the machine for a measurement; waits, and says so once, while another one runs.

    The kernel frees the lock when its holder dies, however it dies.

    Args:
        check: called now and then while waiting; what it raises ends the wait.
    """
    path = runtime_folder() / _LOCK_NAME
    lock = filelock.FileLock(path, mode=0o666)
    told = False
    while not lock.is_locked:
        try:
            lock.acquire(timeout=_POLL_S if told else 0, poll_interval=_POLL_S)
        except filelock.Timeout:
            if not told:
                logging.getLogger(TERMINAL).info("waiting: another measurement runs on this machine (%s)", path)
            told = True
            check()
    with contextlib.suppress(OSError):
        path.chmod(0o666)  # the umask of whoever came first must not lock other users out
    try:
        yield
    finally:
        lock.release()
