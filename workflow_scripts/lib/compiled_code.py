"""Where a measuring process finds and leaves what it compiled.

What one process compiles, no other finds, unless they share a folder: or the compile time would depend on who came
before. A process that was killed while compiling leaves half a library to the next; so a shared folder is marked from
before a process uses it until that has ended well, and a folder that is marked is begun anew.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def compiled_folder(shared: Path | None) -> Iterator[tuple[str, Callable[[bool], None]]]:
    """Gives a folder's absolute path, and a function to say whether the process that used it ended well."""
    if shared is None:
        with tempfile.TemporaryDirectory(prefix="assay-compiled-", ignore_cleanup_errors=True) as folder:
            yield folder, lambda well: None
        return
    mark = shared / "in-use"
    if mark.exists():
        shutil.rmtree(shared, ignore_errors=True)
    shared.mkdir(parents=True, exist_ok=True)
    mark.touch()
    yield str(shared.resolve()), lambda well: mark.unlink(missing_ok=True) if well else None
