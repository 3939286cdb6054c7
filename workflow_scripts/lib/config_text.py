"""Reads a config's YAML as text, for what is lost once it is parsed.

YAML 1.1 turns `010` into 8, `no` into false, `12:30` into 750 and leaves `1e-3` a string. A study must mean what it
says: the first three are refused where they stand, the last is made the number that it is.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_OCTAL = re.compile(r"[-+]?0\d+")
_SEXAGESIMAL = re.compile(r"[-+]?\d+(?::[0-5]?\d)+(?:\.\d*)?")
_WORD_BOOLEANS = frozenset({"y", "n", "yes", "no", "on", "off"})
_EXPONENT = re.compile(r"[-+]?\d+\.?\d*[eE][-+]?\d+")


def check_config_text(path: Path) -> None:
    """Refuses plain scalars whose YAML 1.1 value is not what they seem, and keys that stand twice.

    Raises:
        ValueError: names the file, the line, the key, the text and what to write instead.
    """
    root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    for key, node in _scalars(root, ""):
        where = f"{path.name}, line {node.start_mark.line + 1}: {key or 'top level'}"
        if node.style is not None:
            continue
        text = node.value
        if _OCTAL.fullmatch(text):
            raise ValueError(f"{where} is {text}, which YAML reads as an octal number: write {text.lstrip('0') or '0'}")
        if text.lower() in _WORD_BOOLEANS:
            raise ValueError(f'{where} is {text}, which YAML reads as a truth value: write true or false, or "{text}"')
        if _SEXAGESIMAL.fullmatch(text):
            raise ValueError(f'{where} is {text}, which YAML reads in base 60: write a plain number, or "{text}"')


def _scalars(node: yaml.Node | None, key: str) -> Iterator[tuple[str, yaml.ScalarNode]]:
    if isinstance(node, yaml.ScalarNode):
        yield key, node
    elif isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            yield from _scalars(item, f"{key}[{position}]")
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for name, value in node.value:
            inner = f"{key}.{name.value}" if key else name.value
            if name.value in seen:
                raise ValueError(f"line {name.start_mark.line + 1}: {inner} stands twice: keep one")
            seen.add(name.value)
            yield from _scalars(value, inner)


def normalise(value: Any) -> Any:
    """Makes numbers of strings that spell one (`1e-3`), and integers of whole floats (`1e6`), at any depth."""
    if isinstance(value, dict):
        return {key: normalise(item) for key, item in value.items()}
    if isinstance(value, list):
        return [normalise(item) for item in value]
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        value = float(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
