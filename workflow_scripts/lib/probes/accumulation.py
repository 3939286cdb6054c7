"""Adding up a constant in several formats: how far the sum is off, and why.

Two things go wrong, and they are told apart: the constant is rounded as it is put into the format of the terms, the
same for each of them; and each addition rounds the sum.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import torch

from workflow_scripts.lib.probe_specs import AccumulationProbe, probe_from_json

FORMATS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# Format of the sum, format of the terms, whether each term is converted to the sum's format before it is added.
WAYS = (
    ("fp32", "fp32", False),
    ("fp16", "fp16", False),
    ("bf16", "bf16", False),
    ("fp32", "fp16", False),
    ("fp32", "fp16", True),
    ("fp32", "bf16", False),
    ("fp32", "bf16", True),
)
POINTS = 40  # terms after which a sum is read, evenly spread

Send = Callable[[dict[str, Any]], None]


def probe(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Adds up the constant in each way.

    Returns:
        `rows`: `sum_format`, `term_format`, `upcast`, `terms`, `value` of the sum after so many of them, `exact`,
        `error` (value less exact), `input_error` (what the rounding of the constant alone makes of it) and
        `sum_error` (the rest, from rounding sums). All in the constant's unit.
    """
    spec = probe_from_json(arguments["probe"])
    assert isinstance(spec, AccumulationProbe)
    device = torch.device(spec.device.torch_name)
    torch.set_num_threads(spec.device.threads)
    rows = []
    for sum_format, term_format, upcast in WAYS:
        total = torch.zeros((), dtype=FORMATS[sum_format], device=device)
        term = torch.tensor(spec.constant, dtype=FORMATS[term_format], device=device)
        rounded = Decimal(float(term))
        for n in range(1, spec.terms + 1):
            total += term.to(total.dtype) if upcast else term
            if n % max(1, spec.terms // POINTS) and n != spec.terms:
                continue
            value, exact = Decimal(float(total)), Decimal(str(spec.constant)) * n  # reading synchronises
            rows.append(
                {
                    "sum_format": sum_format,
                    "term_format": term_format,
                    "upcast": upcast,
                    "terms": n,
                    "value": float(value),
                    "exact": float(exact),
                    "error": float(value - exact),
                    "input_error": float(rounded * n - exact),
                    "sum_error": float(value - rounded * n),
                }
            )
    return {"rows": rows}
