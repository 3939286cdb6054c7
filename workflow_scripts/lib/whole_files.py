"""Files that appear whole or not at all: a reader, and a job that starts anew, never meets half of one."""

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Lets `write` fill a file beside `path`, then renames it into place."""
    unfinished = path.with_name(path.name + ".unfinished")
    write(unfinished)
    unfinished.replace(path)


def write_rows(path: Path, columns: tuple[str, ...], rows: Iterable[tuple]) -> None:
    """Writes a CSV table: floats as Python prints them, None as an empty field."""

    def write(unfinished: Path) -> None:
        with unfinished.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)

    write_whole(path, write)
