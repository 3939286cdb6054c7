"""Bytes that operators move at least, from shapes and types."""

from types import SimpleNamespace

import pytest
import torch

from workflow_scripts.lib.operator_bytes import moved_bytes, typed_events

FLOAT, HALF, INDEX = "float", "c10::BFloat16", "long int"


def event(name, *inputs, parent=None):
    shapes, types = zip(*inputs, strict=True) if inputs else ((), ())
    return SimpleNamespace(name=name, input_shapes=shapes, input_dtypes=types, cpu_parent=parent)


SDPA = event("aten::_scaled_dot_product_flash_attention", *[((2, 3, 4, 8), HALF)] * 3)
BACK = event("aten::_scaled_dot_product_flash_attention_backward", *[((2, 3, 4, 8), HALF)] * 5, ((2, 3, 4), FLOAT))


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (event("aten::mm", ((2, 3), FLOAT), ((3, 5), FLOAT)), 4 * (6 + 15 + 10)),
        (event("aten::addmm", ((5,), HALF), ((2, 3), HALF), ((3, 5), HALF), ((), "Scalar")), 2 * (5 + 6 + 15 + 10)),
        (event("aten::gelu", ((2, 3), HALF), ((), "")), 2 * 12),
        (event("aten::add_", ((2, 3), FLOAT), ((3,), FLOAT), ((), "Scalar")), 4 * (6 + 3 + 6)),
        (event("aten::copy_", ((2, 3), HALF), ((2, 3), FLOAT), ((), "Scalar")), 6 * 6),
        (event("aten::index_select", ((100, 8), FLOAT), ((), "Scalar"), ((5,), INDEX)), 5 * (8 + 2 * 32)),
        (event("aten::zero_", ((7,), FLOAT)), 28),
        (event("aten::_flash_attention_forward", parent=SDPA), 2 * 192 * 4),
        (event("aten::_flash_attention_backward", parent=BACK), 2 * 192 * 8),
        (event("aten::view", ((2, 3), FLOAT), ((), "ScalarList")), 0),
        (event("aten::mul", ((2, 3), "a type of tomorrow"), ((2, 3), FLOAT)), 0),
        (event("AddmmBackward0", ((2, 3), FLOAT)), 0),
    ],
)
def test_inputs_are_read_and_outputs_written_once(operator, expected):
    assert moved_bytes(operator) == expected


def test_types_are_found_where_events_do_not_tell_them():
    with torch.profiler.profile(record_shapes=True, acc_events=True) as profiler:
        torch.ones(3, 4, dtype=torch.bfloat16) @ torch.ones(4, 5, dtype=torch.bfloat16)
    events = [SimpleNamespace(name=e.name, time_range=e.time_range, input_shapes=e.input_shapes, cpu_parent=None)
              for e in profiler.events()]  # fmt: skip
    found = typed_events(SimpleNamespace(events=lambda: events, profiler=profiler.profiler))
    assert {moved_bytes(event) for event in found if event.name == "aten::mm"} == {2 * (12 + 20 + 15)}
