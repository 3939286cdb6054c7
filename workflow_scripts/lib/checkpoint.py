"""Checkpoints of a training: written whole or not at all, refused where they belong to another run.

A folder holds at most two, the newest and the one before. A new one is written beside them, flushed to the disk and
only then renamed into place, so that a process killed at any instant leaves a complete one behind.
"""

import logging
import os
import pickle
import time
import zipfile
from pathlib import Path
from typing import Any

import torch

FORMAT = 1  # of what is inside; another number starts the training anew
NEWEST, PREVIOUS, UNFINISHED = "newest.pt", "previous.pt", "unfinished.pt"
UNREADABLE = (OSError, RuntimeError, LookupError, TypeError, ValueError, zipfile.BadZipFile, pickle.UnpicklingError)

log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: where they are; made when the first is written.
        guard: digest of all that makes the run what it is. A checkpoint with another guard is not loaded.
    """

    def __init__(self, folder: Path, guard: str):
        self.folder, self.guard = folder, guard
        self.written_at = time.monotonic()
        self.notices: list[str] = []

    def save(self, content: dict[str, Any]) -> None:
        """Writes a checkpoint of tensors and plain values (what `torch.load` reads with `weights_only=True`)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / UNFINISHED
        with unfinished.open("wb") as file:
            torch.save({"format": FORMAT, "guard": self.guard, "content": content}, file)
            file.flush()
            os.fsync(file.fileno())
        newest = self.folder / NEWEST
        if newest.exists():
            newest.replace(self.folder / PREVIOUS)
        unfinished.replace(newest)
        self.written_at = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """Reads the newest usable checkpoint onto the CPU; None when there is none.

        What was found and not used is told in `notices`, one sentence each.
        """
        for name in (NEWEST, PREVIOUS):
            path = self.folder / name
            if not path.exists():
                continue
            try:
                saved = read_whole(path)
                kind, guard, content = saved["format"], saved["guard"], saved["content"]
            except UNREADABLE as error:
                self._notice(f"checkpoint {path} cannot be read and is passed over ({type(error).__name__})")
                continue
            if (kind, guard) == (FORMAT, self.guard):
                return content
            self._notice(f"checkpoint {path} belongs to another definition of this run: training starts anew")
            return None
        return None

    def age_s(self) -> float:
        """Seconds since the last checkpoint was written, or since the start."""
        return time.monotonic() - self.written_at

    def _notice(self, sentence: str) -> None:
        log.warning(sentence)
        self.notices.append(sentence)


def read_whole(path: Path) -> dict[str, Any]:
    """Reads a file of `torch.save` onto the CPU; torch itself would not notice a damaged tensor.

    Raises:
        ValueError: its checksums say that it is damaged. Any other of `UNREADABLE`: it is no such file.
    """
    with zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():
            raise ValueError(f"{damaged} in {path} is damaged")
    return torch.load(path, map_location="cpu", weights_only=True)
