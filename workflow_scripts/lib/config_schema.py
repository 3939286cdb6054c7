"""Validates a config against config.schema.yaml, with errors that a person can act on."""

import difflib
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import yaml


def validate_config(config: dict[str, Any], schema_path: Path) -> None:
    """Checks a whole config.

    Raises:
        ValueError: one line for the first fault: the key, its value, and what to do.
    """
    schema = _read_schema(schema_path)
    validator = jsonschema.Draft202012Validator(schema)
    faults = sorted(validator.iter_errors(config), key=lambda fault: (len(fault.absolute_path), str(fault.path)))
    if faults:
        raise ValueError(_explain(faults[0], schema))


@functools.cache
def _read_schema(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def suggest(word: str, known: Sequence[str]) -> str:
    """Suggests what was meant, or lists what is known."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"known here: {', '.join(sorted(known))}"


def _explain(fault: jsonschema.ValidationError, schema: dict[str, Any]) -> str:
    if fault.validator in {"oneOf", "anyOf"} and fault.context:
        fault = _closest(fault)
    key = _spell(fault.absolute_path)
    if fault.validator == "additionalProperties":
        known = list(fault.schema.get("properties", {}))
        unknown = next(name for name in fault.instance if name not in known)
        return f"config: {key + '.' if key else ''}{_show(unknown)} is not a key: {suggest(str(unknown), known)}"
    if fault.validator == "required":
        missing = next(name for name in fault.validator_value if name not in fault.instance)
        return f"config: {key + '.' if key else ''}{missing} is missing: {_description(fault.schema, missing, schema)}"
    if fault.validator == "enum":
        hint = suggest(str(fault.instance), [str(value) for value in fault.validator_value])
        return f"config: {key} is {_show(fault.instance, quote=True)}, which it cannot be: {hint}"
    description = _resolve(fault.schema, schema).get("description", "")
    value = _show(fault.instance, quote=True)
    return f"config: {key or 'the whole'} is {value}: it must be {_requirement(fault)}. {description}".rstrip()


def _closest(fault: jsonschema.ValidationError) -> jsonschema.ValidationError:
    """Of several alternatives, explains the one that the value got furthest into."""
    inner = max(fault.context, key=lambda item: (len(item.absolute_path), item.validator != "type"))
    return _closest(inner) if inner.context else inner


def _requirement(fault: jsonschema.ValidationError) -> str:
    bound = fault.validator_value
    return {
        "type": f"of type {' or '.join(bound) if isinstance(bound, list) else bound}",
        "minimum": f"at least {bound}",
        "exclusiveMinimum": f"more than {bound}",
        "maximum": f"at most {bound}",
        "exclusiveMaximum": f"less than {bound}",
        "minItems": f"a list of at least {bound}",
        "maxLength": f"at most {bound} characters long",
        "pattern": "made of small letters, digits, dots, underscores and single hyphens",
        "const": f"{bound} or a list",
    }.get(fault.validator, f"such that {fault.validator} {bound} holds")


def _resolve(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return {**root["$defs"][schema["$ref"].rsplit("/", 1)[1]], **schema}
    return schema


def _description(schema: dict[str, Any], name: str, root: dict[str, Any]) -> str:
    return _resolve(schema.get("properties", {}).get(name, {}), root).get("description", "give it a value")


def _show(value: Any, *, quote: bool = False) -> str:
    """Shows a value on one line, cut short where it is long."""
    text = str(value) if isinstance(value, str) and value.isprintable() and not quote else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _spell(path: Sequence[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
