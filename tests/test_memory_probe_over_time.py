"""Memory over time: blocks, names, peaks and timeline of traces written by hand, and a real trace of a tiny step."""

import dataclasses
import json
import math

import pytest
import torch

from tests.tiny_run import ADAMW, CPU, SHAPE, STEP, write_corpus
from workflow_scripts.lib import allocation_trace, allocation_watch
from workflow_scripts.lib.allocation_trace import Call, Event, Held, Tensor
from workflow_scripts.lib.memory_model import estimate_memory
from workflow_scripts.lib.probe_specs import MemoryProbe, parts
from workflow_scripts.lib.probes import memory
from workflow_scripts.lib.specs import to_json

# A parameter; a forward pass that keeps one block and frees another; a gradient in the address that was freed.
EVENTS = [
    Event(1, 400), Event(9, 64),
    Event(2, 800), Event(3, 1600), Event(3, -1600), Event(4, 32),
    Event(3, 400), Event(2, -800), Event(7, -5),
]  # fmt: skip


def output(address, shape, dtype="float32", size=4):
    return Tensor(address, size * math.prod(shape), shape, dtype, size)


CALLS = [
    Call(entered=2, left=3, operator="mm", module="blocks.0.up", of_parameter=False, outputs=(output(2, (10, 20)),)),
    Call(entered=3, left=4, operator="gelu", module="blocks.1", of_parameter=False, outputs=(output(3, (20, 20)),)),
    Call(entered=4, left=4, operator="view", module="head", of_parameter=False, outputs=(output(2, (200,)),)),
    Call(entered=5, left=6, operator="sort", module="head", of_parameter=False, outputs=()),
    Call(entered=6, left=7, operator="mm", module="blocks.0.up", of_parameter=False, outputs=(output(3, (10, 10)),)),
]
HELD = [
    Held(at=2, role="parameters", name="blocks.0.up.weight", tensor=output(1, (10, 10))),
    Held(at=9, role="gradients", name="blocks.0.up.weight", tensor=output(3, (10, 10))),
    Held(at=9, role="data", name="too large for what lies there", tensor=output(4, (10, 10))),
]


def named():
    return allocation_trace.name_blocks(allocation_trace.blocks_of(EVENTS), CALLS, HELD, start=2, kept_from=6)


def test_blocks_are_told_by_what_wrote_them_first_and_by_what_they_are_at_the_end():
    told = [(block.bytes, block.category, block.module, block.operator) for block in named()]
    assert told == [
        (400, "parameters", "blocks.0.up.weight", ""),
        (64, "other", "", ""),
        (800, "activations", "blocks.0.up", "mm"),
        (1600, "temporaries", "blocks.1", "gelu"),
        (32, "activations", "head", "sort"),
        (400, "gradients", "blocks.0.up.weight", "mm"),
    ]
    inside = named()[4]
    assert inside.inside
    assert inside.tensor is None


def test_the_peak_is_where_most_is_there_and_its_blocks_sum_to_it():
    size, place = allocation_trace.peak(EVENTS, 2, 9)
    assert (size, place) == (2864, 4)
    there = allocation_trace.alive(named(), place)
    assert sum(allocation_trace.by_category(there).values()) == size
    assert allocation_trace.largest(there)[0] == {
        "category": "temporaries", "module": "blocks.*", "layers": [1], "operator": "gelu", "inside": False,
        "shape": [20, 20], "dtype": "float32", "element_bytes": 4, "bytes": 1600, "count": 1,
    }  # fmt: skip
    assert allocation_trace.peak(EVENTS, 6, 9) == (1696, 7)


def test_a_timeline_is_thinned_without_its_peak():
    events = [event for n in range(2000) for event in (Event(n, 1000 + n % 7), Event(n, -1000 - n % 7))]
    blocks = allocation_trace.name_blocks(allocation_trace.blocks_of(events), [], [], 0, 0)
    line = allocation_trace.timeline(blocks, 0, len(events), [1234])
    assert 1234 in line["place"]
    assert len(line["place"]) < allocation_trace.N_POINTS + 10
    assert max(line["workspace"]) == 1006
    line = allocation_trace.timeline(named(), 2, 9, [])
    sums = [sum(values) for values in zip(*(line[key] for key in line if key != "place"), strict=True)]
    assert sums == [464, 1264, 2864, 1264, 1296, 1696, 896, 896]


def test_a_snapshot_of_cuda_is_read_up_to_the_free_that_is_asked_for():
    entry = {"stream": 0, "time_us": 1, "frames": [], "compile_context": "N/A", "user_metadata": ""}
    trace = [
        entry | {"action": "segment_alloc", "addr": 4096, "size": 2097152},
        entry | {"action": "alloc", "addr": 4096, "size": 1000},
        entry | {"action": "free_requested", "addr": 4096, "size": 1000},
        entry | {"action": "free_completed", "addr": 4096, "size": 1000},
        entry | {"action": "snapshot", "addr": 0, "size": 0},
    ]
    assert allocation_watch.events_of_history(trace) == [Event(4096, 1000), Event(4096, -1000)]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    paths = {key: str(path) for key, path in write_corpus(folder).items()}
    kept = dataclasses.replace(STEP, precision="bf16"), dataclasses.replace(STEP, checkpointing=True)
    probe = MemoryProbe(id="memory", device=CPU, name="tiny", models=(SHAPE,), steps=kept, modes=("forward", "step"),
                        optimizer=ADAMW, timeout_s=60.0)  # fmt: skip
    torch.manual_seed(0)
    found = [
        memory.probe({"probe": part, "kept": str(folder / "kept"), **paths}, lambda message: None)["rows"][0]
        for part in parts(to_json(probe))
    ]
    return {(row["precision"], row["mode"]): row for row in found}


def test_a_pass_is_traced_without_changing_it(rows):
    assert len(rows) == 4
    for row in rows.values():
        assert row["status"] == "ok", row["reason"]
        assert row["peak_bytes"] == row["unwatched_peak_bytes"] == max(row["phases"].values())
        assert sum(row["categories"].values()) == row["peak_bytes"]
        line = row["timeline"]
        at = line["place"].index(row["peak_place"])
        assert sum(line[name][at] for name in line if name != "place") == row["peak_bytes"]
        assert row["snapshot"] is None
        assert len(json.dumps(row)) < 30_000
    assert set(rows["bf16", "forward"]["phases"]) == {"forward"}
    assert rows["bf16", "step"]["categories"]["parameters"] == rows["bf16", "forward"]["categories"]["parameters"]


def test_what_is_alive_at_the_peak_has_its_layer_and_shape(rows):
    found = {(block["module"], block["operator"]): block for block in rows["bf16", "step"]["blocks"]}
    qkv = found["blocks.*.attention.qkv", "addmm"]
    assert (qkv["layers"], qkv["shape"], qkv["element_bytes"], qkv["count"]) == ([0, 1], [64, 96], 2, 2)
    assert qkv["bytes"] == 64 * 96 * 2
    assert found["blocks.*.attention.qkv", "_to_copy"]["category"] in ("weight copies", "activations")
    backward = rows["fp32", "step"]["blocks"]
    assert {block["layers"][0] for block in backward if block["operator"] == "gelu_backward"} == {0}
    assert {block["module"] for block in backward if block["operator"] == "gelu_backward"} == {"blocks.*.mlp"}


def test_the_model_of_memory_predicts_the_trace(rows):
    for (_, mode), row in rows.items():
        step = dataclasses.replace(STEP, precision=row["precision"], checkpointing=row["checkpointing"])
        predicted = estimate_memory(SHAPE, step, ADAMW, "cpu", mode=mode)
        for phase, size in row["phases"].items():
            assert predicted.phases[phase] == pytest.approx(size, rel=0.05)
