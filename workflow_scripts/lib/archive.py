"""Zip archives from outside, read whole into memory or refused: nothing is ever unpacked to a path.

Refused are names that leave their folder, links, members that stand twice (readers differ in which they take), anything
but JSON, CSV, YAML and text, encryption, and sizes that only an attack needs.
"""

import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

SUFFIXES = frozenset({".json", ".csv", ".yaml", ".txt"})
COMPRESSIONS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2})  # LZMA may ask for any memory
MOST_MEMBERS = 20_000
MOST_BYTES = 256 * 2**20
MOST_RATIO = 1_000  # a megabyte of one repeated character compresses better, no table does
FREE_OF_RATIO = 2**20  # bytes that a member may have whatever its ratio
EPOCH = (1980, 1, 1, 0, 0, 0)


class Refused(ValueError):
    """An archive that is not read: the message names the fault, without the file."""


def pack(archive: Path, members: Mapping[str, bytes]) -> None:
    """Writes an archive whose bytes depend on its members alone: sorted, without times or owners."""
    with zipfile.ZipFile(archive, "w", compression=zipfile.ZIP_BZIP2, compresslevel=9) as file:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, date_time=EPOCH)
            info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            info.compress_type = zipfile.ZIP_BZIP2
            file.writestr(info, members[name])


def read_members(archive: Path) -> dict[str, bytes]:
    """Reads every member of an archive.

    Raises:
        Refused: the file is no archive, damaged, or holds what an archive of tables does not.
    """
    try:
        with zipfile.ZipFile(archive) as file:
            members = file.infolist()
            _check(members)
            return {member.filename: file.read(member) for member in members}
    except Refused:
        raise
    except Exception as error:  # zipfile has a dozen kinds of them for damaged files, and all mean the same
        raise Refused(f"it cannot be read ({' '.join(str(error).split())})") from error


def _check(members: list[zipfile.ZipInfo]) -> None:
    if len(members) > MOST_MEMBERS:
        raise Refused(f"it has {len(members):,} members, more than {MOST_MEMBERS:,}")
    seen: set[str] = set()
    for member in members:
        name = member.orig_filename
        if name in seen:
            raise Refused(f"its member {name!r} stands twice")
        seen.add(name)
        _check_name(name)
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise Refused(f"its member {name!r} is a link or a special file")
        if member.flag_bits & 0x1:
            raise Refused(f"its member {name!r} is encrypted")
        if member.compress_type not in COMPRESSIONS:
            raise Refused(f"its member {name!r} is compressed by method {member.compress_type}, which is not read")
        if member.file_size > max(FREE_OF_RATIO, MOST_RATIO * member.compress_size):
            raise Refused(f"its member {name!r} unpacks to {member.file_size:,} bytes from {member.compress_size:,}")
    total = sum(member.file_size for member in members)
    if total > MOST_BYTES:
        raise Refused(f"its members unpack to {total:,} bytes, more than {MOST_BYTES:,}")


def _check_name(name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or "\\" in name or ":" in name or "\0" in name or path.as_posix() != name:
        raise Refused(f"its member {name!r} has no plain relative path")
    if ".." in path.parts or any(part.startswith(".") for part in path.parts):
        raise Refused(f"its member {name!r} leads out of the archive or is hidden")
    if path.suffix not in SUFFIXES:
        raise Refused(f"its member {name!r} is none of {', '.join(sorted(SUFFIXES))}")
