"""The workflow that a job belongs to: the Snakemake process above it, whose end must end whatever a job started."""

import contextlib
import itertools
import os
import select
from pathlib import Path

import psutil


class WorkflowEnded(SystemExit):
    """The workflow is gone, so nobody waits for this job any more."""


class Workflow:
    """The outermost Snakemake process among our ancestors, or nothing where there is none (tests, a REPL)."""

    def __init__(self, process: psutil.Process | None) -> None:
        self.process = process
        self.pidfd: int | None = None
        if process is not None and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self.pidfd = os.pidfd_open(process.pid)

    @classmethod
    def find(cls) -> "Workflow":
        found = None
        with contextlib.suppress(psutil.Error):
            for ancestor in psutil.Process().parents():
                if is_snakemake(ancestor):
                    found = ancestor
        return cls(found)

    def ended(self) -> bool:
        """Whether the workflow has ended; never true where there was none."""
        if self.process is None:
            return False
        if self.pidfd is not None:
            return bool(select.select([self.pidfd], [], [], 0)[0])
        return not self.process.is_running()

    def check(self) -> None:
        """Raises WorkflowEnded once the workflow has ended."""
        if self.ended():
            raise WorkflowEnded("the workflow has ended; this measurement ends, too")

    def close(self) -> None:
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


def is_snakemake(process: psutil.Process) -> bool:
    """Recognises `snakemake …` and `python … -m snakemake …` by their command line."""
    try:
        words = process.cmdline()[:4]
    except psutil.Error:
        return False
    started_as_module = any(pair == ("-m", "snakemake") for pair in itertools.pairwise(words))
    return started_as_module or any(Path(word).name == "snakemake" for word in words[:2])
