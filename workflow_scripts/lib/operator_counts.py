"""How often operators must be called, which follows from a model's layers, and the FLOPs that no profiler counts."""

import re
from typing import Any

COUNT_COLUMNS = "device probe model mode phase what expected found agrees record".split()
LINEAR_PER_LAYER = 4  # queries, keys and values in one; projection; up (with the gate of llama in one); down
PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::_addmm_activation", "aten::mkldnn_linear"})
OUTER = re.compile(r"aten::_scaled_dot_product_(?!attention_math)")
INNER = re.compile(r"aten::_(flash|efficient|cudnn)_attention_(forward|backward)$")
# For each score: maximum, difference, exponential, sum, quotient; backwards product, sum, difference, product.
SOFTMAX_FLOPS = {"aten::_softmax": 5.0, "aten::_softmax_backward_data": 4.0}


def softmax_flops(operator: str, calls: float | None, asked: dict[str, Any]) -> float | None:
    """FLOPs of a softmax over the scores of attention, (B, H, T, T); None for what only wraps it.

    # Assume: an exponential counts as one.
    """
    model, step = asked["model"], asked["step"]
    per_score = SOFTMAX_FLOPS.get(operator)
    if per_score is None or not calls:
        return None
    scores = step["batch_size"] // step["accumulation"] * model["n_head"] * model["sequence_length"] ** 2
    return per_score * scores * calls


def count_rows(rows: list[dict[str, Any]], asked: dict[str, Any], observed: dict[str, Any]) -> list[dict[str, Any]]:
    """Compares counts per step with those that follow from the layers.

    Only eager steps show one operator for one line of the model. Forward: one product a linear map, and one attention a
    layer; backward: two products for each, and one attention a layer, which spelled out is two products forward and
    four backward.

    Args:
        rows: the operators of all modes.
        asked: the probe.
        observed: what the forward pass was seen to do.

    Returns:
        `mode`, `phase`, `what`, `expected`, `found`, `agrees`.
    """
    if asked["step"]["execution"] != "eager":
        return []
    layers = asked["model"]["n_layer"] * asked["step"]["accumulation"]
    linear = LINEAR_PER_LAYER * layers + asked["step"]["accumulation"]
    spelled_out = observed.get("attention_backend") == "math"
    counts = []
    for mode in asked["modes"]:
        own = [row for row in rows if row["mode"] == mode and row["status"] == "ok"]
        for phase, factor in (("forward", 1), ("backward", 2)):
            if not own or (phase == "backward" and mode == "forward") or mode == "optimizer":
                continue
            asked_for = {"products of linear maps": (factor * linear, _calls(own, phase, PRODUCTS))}
            if spelled_out:
                found = _calls(own, phase, {"aten::bmm", "aten::baddbmm"})
                asked_for["products of attention"] = (2 * factor * layers, found)
            else:
                asked_for["attentions"] = (layers, _fused(own, phase))
            counts += [
                {"mode": mode, "phase": phase, "what": what, "expected": expected, "found": found,
                 "agrees": abs(found - expected) < 0.5, "status": "ok"}
                for what, (expected, found) in asked_for.items()
            ]  # fmt: skip
    return counts


def _calls(rows: list[dict[str, Any]], phase: str, names: Any) -> float:
    return sum(row["calls_per_step"] for row in rows if row["operator"] in names and row["phase"] == phase)


def _fused(rows: list[dict[str, Any]], phase: str) -> float:
    """Calls of fused attention: of the operator that knows the shapes, or of the one in it that has the time."""
    own = [
        row for row in rows if row["phase"] == phase and row["operator"].endswith("_backward") == (phase == "backward")
    ]
    outer, inner = (
        sum(row["calls_per_step"] for row in own if pattern.match(row["operator"])) for pattern in (OUTER, INNER)
    )
    return max(outer, inner)
