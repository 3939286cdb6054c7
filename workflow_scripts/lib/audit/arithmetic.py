"""Arithmetic as a document types it: quantities with their printed precision, and expressions computed again."""

import ast
import dataclasses
import operator
import re
from collections.abc import Mapping

FACTORS = {
    **{"": 1.0, "x": 1.0, "%": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "K": 1e3, "M": 1e6},
    **{"KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "bytes": 1.0},
    "B": 1e9,  # a count in billions; bytes are spelt out
}
_QUANTITY = re.compile(r"^(~|about )?([+−-]?\d[\d,]*(?:\.(\d+))?(?:[eE][+-]?\d+)?)\s*([A-Za-z%]*)$")
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


@dataclasses.dataclass(frozen=True)
class Printed:
    """A number as printed: its value in base units, half a unit of its last digit, and whether it says “about”."""

    value: float
    half_unit: float
    approximate: bool = False


def parse(text: str, unit: str = "") -> Printed:
    """Reads `308.03 ms`, `128.6M`, `~16GB`, `5.79%`, or a plain number in `unit`.

    Raises:
        ValueError: the text is not a number with a known unit.
    """
    found = _QUANTITY.match(text.strip())
    if found is None or (found[4] or unit) not in FACTORS:
        raise ValueError(f"not a quantity: {text!r}; known units: {', '.join(filter(None, FACTORS))}")
    factor = FACTORS[found[4] or unit]
    number = float(found[2].replace(",", "").replace("−", "-"))
    return Printed(number * factor, 0.5 * 10.0 ** -len(found[3] or "") * factor, found[1] is not None)


def evaluate(expression: str, names: Mapping[str, float] | None = None) -> float:
    """Computes an expression of numbers, names, parentheses and + - * / **; nothing else is allowed.

    Raises:
        ValueError: the expression holds anything else, or a name without a value.
    """

    def walk(node: ast.AST) -> float:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        if isinstance(node, ast.Name) and names is not None and node.id in names:
            return float(names[node.id])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -walk(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](walk(node.left), walk(node.right))
        raise ValueError(f"cannot compute {ast.unparse(node)!r} in {expression!r}")

    return walk(ast.parse(expression, mode="eval").body)
