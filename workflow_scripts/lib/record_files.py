"""Reads the files that devices left, whether they lie in the results of this machine or inside a recording.

A recording keeps the paths below results/{study}/, and a file inside it is named through it:
`recordings/laptop/h100.zip/devices/h100/device.json`. It is read where it lies; nothing is unpacked.
"""

import functools
import io
import json
import zipfile
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path


def read_text(path: Path) -> str:
    """Reads a UTF-8 file, by its path on the disk or through a recording.

    Raises:
        FileNotFoundError: there is no such file, or no such member of the recording.
    """
    archive = archive_of(path)
    if archive is None:
        return path.read_text(encoding="utf-8")
    try:
        return _open(archive).read(path.relative_to(archive).as_posix()).decode()
    except KeyError as error:
        raise FileNotFoundError(f"{archive} has no member {path.relative_to(archive).as_posix()}") from error


def open_text(path: Path) -> io.StringIO:
    """What `read_text` gives, for readers of CSV."""
    return io.StringIO(read_text(path))


def archive_of(path: Path) -> Path | None:
    """The recording that a path leads into, or None."""
    return next((parent for parent in path.parents if parent.suffix == ".zip" and parent.is_file()), None)


def recorded(recordings: Iterable[Path], pattern: str) -> list[Path]:
    """Names the files of recordings below their device, such as `cells/*.json`, recording by recording, sorted."""
    return [
        archive / name
        for archive in recordings
        for name in sorted(_open(archive).namelist())
        if fnmatchcase(name, f"devices/{archive.stem}/{pattern}")
    ]


def of_same_models(records: Iterable[Path], selection: Iterable[Path], local: Iterable[Path] = ()) -> list[Path]:
    """Keeps the records of runs or profiles whose role, if they have one, has the model that the selection gives it.

    Args:
        records: run.json or profile.json of recorded devices.
        selection: selection.json, or nothing where the study names its models.
        local: records of this machine, in whose order those of each recorded device are given.
    """
    roles = {role: chosen for file in selection for role, chosen in json.loads(read_text(file))["roles"].items()}
    kept = []
    for record in records:
        spec = json.loads(read_text(record))["spec"]
        if spec["name"] not in roles or spec["model"] == roles[spec["name"]]["shape"]:
            kept.append(record)
    places = {name: place for place, name in enumerate(dict.fromkeys(path.parent.name for path in local))}
    return sorted(kept, key=lambda path: (str(archive_of(path)), places.get(path.parent.name, len(places))))


def _open(archive: Path) -> zipfile.ZipFile:
    status = archive.stat()
    return _opened(archive, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=32)
def _opened(archive: Path, size: int, mtime_ns: int) -> zipfile.ZipFile:
    return zipfile.ZipFile(archive)
