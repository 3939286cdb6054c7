"""Bytes that an operator moves at least: its inputs read once and its outputs written once, from shapes and types.

A lower bound: what does not fit into a cache is moved more often, and what is still in one is moved less. Works on what
`torch.profiler` gives as `events()`.
"""

import math
import re
from typing import Any

_SIZES = {"float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "long": 8, "int": 4, "bool": 1,
          "unsigned char": 1, "signed char": 1, "short": 2}  # fmt: skip
_PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "_addmm_activation": 1, "baddbmm": 1}  # where the first factor stands
_LIKE_THE_LARGEST = re.compile(
    r"(add|sub|mul|div|neg|pow|sqrt|rsqrt|exp|log|tanh|sigmoid|where|gelu|silu|relu|reciprocal|clamp|"
    r"gelu_backward|silu_backward|sigmoid_backward|tanh_backward|_softmax|_log_softmax|_softmax_backward_data|"
    r"_log_softmax_backward_data|native_layer_norm|native_layer_norm_backward|_fused_rms_norm|_fused_rms_norm_backward|"
    r"native_dropout|native_dropout_backward|masked_fill)"
)
_REDUCTIONS = ("sum", "linalg_vector_norm")
_WRITTEN_ONLY = ("zero_", "fill_", "normal_", "bernoulli_")
_INNER_ATTENTION = re.compile(r"_(flash|efficient|cudnn)_attention_(forward|backward)")
_CPU_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


def typed_events(profiler: Any) -> list[Any]:
    """Gives a profiler's events with the types of their inputs, which not every release of torch tells there."""
    events = profiler.events()
    if events and not hasattr(events[0], "input_dtypes"):
        results = profiler.profiler.kineto_results
        start = results.trace_start_ns()
        types = {(event.name(), event.start_ns() - start): event.dtypes() for event in results.events()}
        for event in events:
            event.input_dtypes = types.get((event.name, round(event.time_range.start * 1000)))
    return events


def moved_bytes(event: Any) -> float:
    """Gives the bytes that an operator moves at least; 0 where no rule is known (lists of tensors show no shapes)."""
    name = event.name.removeprefix("aten::")
    if name == event.name:  # autograd's nodes, marks
        return 0.0
    if _INNER_ATTENTION.fullmatch(name) and event.cpu_parent is not None:
        return _attention(event.cpu_parent, name.endswith("backward"))
    if name.startswith(_CPU_ATTENTION):
        return _attention(event, name.endswith("backward"))
    inputs = _tensors(event)
    if not inputs:
        return 0.0
    read = sum(math.prod(shape) * size for shape, size in inputs)
    if name in _PRODUCTS:
        factors = inputs[_PRODUCTS[name] : _PRODUCTS[name] + 2]
        if len(factors) < 2:
            return 0.0
        (first, size), (second, _) = factors
        return float(read + math.prod(first[:-1]) * second[-1] * size)
    if name == "index_select":
        rows, (table, size) = inputs[-1], inputs[0]
        return float(math.prod(rows[0]) * (rows[1] + 2 * size * math.prod(table[1:])))
    if name in _WRITTEN_ONLY:
        return float(math.prod(inputs[0][0]) * inputs[0][1])
    if name == "copy_":
        return float(read)  # the one is read, the other written
    if name in _REDUCTIONS:
        return float(read)
    largest = max(math.prod(shape) * size for shape, size in inputs)
    if _LIKE_THE_LARGEST.fullmatch(name) or _LIKE_THE_LARGEST.fullmatch(name.removesuffix("_")):
        return float(read + largest)
    return 0.0


def _tensors(event: Any) -> list[tuple[tuple[int, ...], int]]:
    """Shape and bytes per element of each input that is a tensor; empty where one of them is of an unknown type."""
    types = getattr(event, "input_dtypes", None) or []
    pairs = [
        (tuple(shape), kind) for shape, kind in zip(event.input_shapes, types, strict=False)
        if kind in _SIZES or (shape and all(isinstance(edge, int) for edge in shape))
    ]  # fmt: skip
    if any(kind not in _SIZES for _, kind in pairs):
        return []
    return [(shape, _SIZES[kind]) for shape, kind in pairs]


def _attention(event: Any, backward: bool) -> float:
    """Forward: queries, keys and values, and the output. Backward: also its gradient in, and three gradients out."""
    inputs = [(shape, size) for shape, size in _tensors(event) if len(shape) == 4]
    if len(inputs) < (5 if backward else 3):
        return 0.0
    sizes = [math.prod(shape) * size for shape, size in inputs]
    return float(sum(sizes[:5]) + sum(sizes[1:4]) if backward else sum(sizes[:3]) + sizes[0])
