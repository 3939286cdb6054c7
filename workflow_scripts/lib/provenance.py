"""What a result was made by: the digest of the code that can change it, the environment, the commit.

The digest of a script covers the script and every local module that it imports, transitively, printed by `ast.unparse`
without docstrings: comments, docstrings, layout and time stamps are not behaviour. A string constant that names a
module of ours (`"workflow_scripts.lib.cell:measure_cell"`, the target of a child process) counts as an import.
"""

import ast
import functools
import hashlib
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from workflow_scripts.lib.specs import canonical

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
        digest.update(f"{path.relative_to(ROOT).as_posix()}\0{ast.unparse(_behaviour(path))}\0".encode())
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
        waiting += [module for name in _named_modules(_behaviour(path)) for module in _files_of(name)]
    return frozenset(found)


@functools.cache
def _behaviour(path: Path) -> ast.Module:
    """Parses a file without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _named_modules(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _TARGET.fullmatch(node.value):
            names.add(node.value.split(":")[0])
    return {name for name in names if name.split(".")[0] == PACKAGE}


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
