"""What a result was made by: the digest of the code that can change it, the environment, the commit.

The digest of a script covers the script and every local module that it imports, transitively, as syntax trees without
docstrings: comments, docstrings, layout and time stamps are not behaviour, nor is the version of Python, which whoever
reads a recording need not share. A string constant that names a module of ours
(`"workflow_scripts.lib.cell:measure_cell"`, the target of a child process) counts as an import. What a file does is
kept beside the engine's own memory: reading two hundred files takes as long as the engine does.
"""

import ast
import contextlib
import dataclasses
import functools
import hashlib
import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from workflow_scripts.lib.specs import canonical
from workflow_scripts.lib.whole_files import write_whole

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "workflow_scripts"

# Bookkeeping: how a job logs, keeps its record and watches its host changes no measured value. Records have a version
# of their own, and an edit here must not time a GPU again.
BOOKKEEPING = frozenset(
    {"job", "machine_lock", "machine_state", "plan", "progress", "provenance", "records", "workflow_process"}
)

_TARGET = re.compile(rf"{PACKAGE}(?:\.\w+)+(?::\w+)?")


def spec(script: str, **slice_of_config: Any) -> str:
    """Prints the one param of a rule: its slice of the config and the digest of its script's code.

    Args:
        script: the script's name, as the rule's (`benchmark_cell`).
        slice_of_config: plain JSON values that the script reads, the smallest set that it uses.
    """
    return canonical({"code": code_digest(f"{PACKAGE}/{script}.py"), **slice_of_config})


@functools.cache
def code_digest(script: str) -> str:
    """Digests the behaviour of a script, given by its path from the root of the repo."""
    digest = hashlib.sha256()
    for path in sorted(modules_of(script)):
        digest.update(f"{path.relative_to(ROOT).as_posix()}\0{_behaviour(path).digest}\0".encode())
    return digest.hexdigest()[:16]


def modules_of(script: str) -> frozenset[Path]:
    """Lists the script and the local modules that it imports or names as a child's target, without bookkeeping."""
    found: set[Path] = set()
    waiting = [(ROOT / script).resolve()]
    while waiting:
        path = waiting.pop()
        if path in found or path.stem in BOOKKEEPING:
            continue
        found.add(path)
        waiting += [file for module in _behaviour(path).modules for file in _files_of(module)]
    return frozenset(found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What a file does: the digest of its tree without docstrings, and the modules of ours that it imports or names."""

    digest: str
    modules: tuple[str, ...]


@functools.cache
def _behaviour(path: Path) -> Behaviour:
    """Reads what a file does, or takes what was kept of the same source."""
    source = path.read_bytes()
    kept = ROOT / ".snakemake" / "behaviour" / f"{path.relative_to(ROOT).as_posix().replace('/', '.')}.json"
    key = hashlib.sha256(b"\0".join([_reader(), source])).hexdigest()
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(kept.read_text(encoding="utf-8"))
        if known["key"] == key:
            return Behaviour(digest=known["digest"], modules=tuple(known["modules"]))
    behaviour = _read_behaviour(source, str(path))
    with contextlib.suppress(OSError):  # it is only kept to save time
        kept.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps({"key": key, **dataclasses.asdict(behaviour)})
        write_whole(kept, lambda unfinished: unfinished.write_text(content, encoding="utf-8"))
    return behaviour


@functools.cache
def _reader() -> bytes:
    """What else decides how a file is read: this module and the Python that runs it."""
    return Path(__file__).read_bytes() + sys.version.encode()


def _read_behaviour(source: bytes, name: str) -> Behaviour:
    tree = ast.parse(source, filename=name)
    modules: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                if ast.get_docstring(node, clean=False) is not None:
                    node.body = node.body[1:] or [ast.Pass()]
            case ast.JoinedStr():  # Python 3.12 puts an empty string behind some format specifications
                node.values = [each for each in node.values if not _is_empty(each)]
            case ast.Import():
                modules.update(alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                modules.update([module, *(f"{module}.{alias.name}" for alias in node.names)])
            case ast.Constant(value=str(text)) if _TARGET.fullmatch(text):
                modules.add(text.split(":")[0])
    ours = sorted(module for module in modules if module.split(".")[0] == PACKAGE)
    tree_bytes = json.dumps(_plain(tree)).encode()
    return Behaviour(digest=hashlib.sha256(tree_bytes).hexdigest(), modules=tuple(ours))


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == ""


def _plain(node: Any) -> Any:
    """Turns a syntax tree into lists. Empty fields are left out: each version of Python adds some of its own."""
    match node:
        case ast.AST():
            fields = [[name, _plain(value)] for name, value in ast.iter_fields(node) if value not in (None, [])]
            return [type(node).__name__, *(field for field in fields if field[0] != "kind")]
        case list():
            return [_plain(each) for each in node]
        case _:
            return f"{type(node).__name__} {node!r}"


def _files_of(module: str) -> list[Path]:
    path = ROOT.joinpath(*module.split("."))
    return [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def package_version(name: str) -> str | None:
    """Version of an installed package, without importing it; None when it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@functools.cache
def commit() -> str | None:
    """Commit of the checkout, with `-dirty` when tracked files differ from it; None outside a git checkout."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return described.stdout.strip() or None if described.returncode == 0 else None
