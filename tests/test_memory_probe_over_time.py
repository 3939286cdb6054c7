"""Memory over time: blocks, names, peaks and timeline of traces written by hand, and a real trace of a tiny step."""

import dataclasses
import json
import math
import re

import pandas as pd
import pytest
import torch

from tests.tiny_run import ADAMW, CPU, SHAPE, STEP, write_corpus
from workflow_scripts import collect_pass_memory, draw_memory_timeline
from workflow_scripts.lib import allocation_trace, allocation_watch, csv_tables, pass_memory_section
from workflow_scripts.lib.allocation_trace import Call, Event, Held, Tensor
from workflow_scripts.lib.memory_model import estimate_memory
from workflow_scripts.lib.pass_memory_table import arithmetic, layers, what
from workflow_scripts.lib.probe_specs import MemoryProbe, parts
from workflow_scripts.lib.probes import memory
from workflow_scripts.lib.recordings import PLACES
from workflow_scripts.lib.records import RECORD_VERSION
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


@pytest.mark.parametrize("counted", [{"allocated": 8, "freed": 2}, {"allocated": 9, "freed": 2}])
def test_a_history_that_lacks_events_is_refused_and_a_whole_one_is_kept(tmp_path, monkeypatch, counted):
    counts = iter([{"allocated": 6, "freed": 2}, {"allocated": 7, "freed": 2}, counted])
    trace = [{"action": "alloc", "addr": address, "size": 512} for address in (512, 1024)]
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device: {"allocation": {"all": next(counts)}})
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda *args, **kwargs: None)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"device_traces": [[], trace]})
    history = allocation_watch.HistoryTrace(torch.device("cuda", 1))
    assert history.place(history.mark()) == 1
    if counted["allocated"] == 9:
        with pytest.raises(RuntimeError, match="has 2 allocations and frees, the allocator counted 3"):
            history.stop(None)
        return
    history.stop(tmp_path / "kept" / "a.pickle")
    assert history.events == [Event(512, 512), Event(1024, 512)]
    assert [file.name for file in (tmp_path / "kept").iterdir()] == ["a.pickle"]


def test_a_recording_has_the_record_and_no_snapshot():
    places = PLACES.format(device="gpu")
    assert re.fullmatch(places, "devices/gpu/probes/memory.json")
    assert not re.fullmatch(places, "devices/gpu/probes/memory/128-fp32-step.pickle")


FUSED = dataclasses.replace(STEP, attention="flash")
KEPT = dataclasses.replace(FUSED, precision="bf16"), dataclasses.replace(FUSED, checkpointing=True)
PROBE = MemoryProbe(id="memory", device=CPU, name="tiny", models=(SHAPE,), steps=KEPT, modes=("forward", "step"),
                    optimizer=ADAMW, timeout_s=60.0)  # fmt: skip


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    paths = {key: str(path) for key, path in write_corpus(folder).items()}
    found = [
        memory.probe({"probe": part, "kept": str(folder / "kept"), **paths}, lambda message: None)["rows"][0]
        for part in parts(to_json(PROBE))
    ]
    return {(row["precision"], row["mode"]): row for row in found}


@pytest.fixture(scope="module")
def made(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    lost = {"precision": "tf32", "sequence_length": 16, "mode": "step", "batch_size": 4, "checkpointing": False,
            "status": "oom", "reason": "no room"}  # fmt: skip
    record = {"record_version": RECORD_VERSION, "kind": "probe", "id": "memory", "status": "ok", "reason": "",
              "spec": to_json(PROBE), "environment": {}, "result": {"rows": [*rows.values(), lost]}}  # fmt: skip
    (folder / "memory.json").write_text(json.dumps(record))
    names = ("memory_passes", "memory_blocks", "memory_timeline")
    tables = {name: folder / f"{name}.csv" for name in names}
    collect_pass_memory.main(probes=[folder / "memory.json"], recordings=[], **tables, spec={})
    return tables


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
        step = dataclasses.replace(FUSED, precision=row["precision"], checkpointing=row["checkpointing"])
        predicted = estimate_memory(SHAPE, step, ADAMW, "cpu", mode=mode)
        packed = 0.02 * (row["precision"] == "bf16")  # what a processor that multiplies bf16 makes of small matrices
        for phase, size in row["phases"].items():
            assert predicted.phases[phase] == pytest.approx(size, rel=0.05 + packed)


@pytest.mark.parametrize(
    ("block", "name", "bytes_told"),
    [
        ({"category": "activations", "module": "blocks.*.up", "operator": "mm", "inside": False, "shape": [2048, 768],
          "element_bytes": 2, "bytes": 2048 * 768 * 2}, "mm in blocks.*.up", "16 × 128 × 768 × 2 bytes = 3.00 MiB"),
        ({"category": "parameters", "module": "norm.weight", "operator": "", "inside": False, "shape": [768],
          "element_bytes": 4, "bytes": 4096}, "norm.weight", "768 × 4 bytes = 3.00 KiB, in a block of 4.00 KiB"),
        ({"category": "workspace", "module": "", "operator": "mm", "inside": True, "shape": None,
          "element_bytes": None, "bytes": 9}, "no tensor that is seen: taken within mm outside the blocks", None),
        ({"category": "other", "module": "", "operator": "", "inside": False, "shape": None, "element_bytes": None,
          "bytes": 9}, "no tensor that is seen: taken before the pass", None),
    ],
)  # fmt: skip
def test_a_block_is_named_with_its_arithmetic_or_said_to_have_no_name(block, name, bytes_told):
    assert what(block) == name
    told = arithmetic(block, 16, 128)
    assert (told and told.replace("\xa0", " ")) == bytes_told


def test_layers_in_a_row_are_a_range():
    assert layers([0, 1, 2, 5, 7, 8]) == "0–2, 5, 7–8"
    assert layers([]) is None


def test_the_report_tells_of_peaks_their_contents_and_what_failed(made):
    tables = {name: csv_tables.read(made[name]) for name in ("memory_passes", "memory_blocks")}
    part = pass_memory_section.part(tables, "study")
    text = " ".join(part.sentences).replace("\xa0", " ")
    assert "On cpu a whole step of `tiny` over 4 × 16 tokens takes" in text
    assert "Watching a pass did not change its peak" in text
    assert "of these, together" in text or "times 4 × 16 ×" in text
    passes, phases, blocks = (shown.table for shown in part.tables)
    assert len(passes.rows) == 5
    assert any("no room" in cell.text for row in passes.rows for cell in row)
    assert len(phases.rows) == 3
    assert any("4 × 16 × 96 × 2" in cell.text.replace("\xa0", " ") for row in blocks.rows for cell in row)
    assert pass_memory_section.part({"memory_passes": pd.DataFrame(), "memory_blocks": pd.DataFrame()}, "s") is None


def test_the_figure_draws_each_pass_up_to_its_peak(made, rows, tmp_path):
    figure, data = tmp_path / "memory_timeline.svg", tmp_path / "drawn.csv"
    draw_memory_timeline.main(memory_timeline=made["memory_timeline"], figure=figure, data=data, spec={})
    drawn = pd.read_csv(data)
    peaks = drawn[drawn.is_peak].set_index(["precision", "mode"]).bytes
    assert peaks.to_dict() == {key: row["peak_bytes"] for key, row in rows.items()}
    assert "activations" in figure.read_text(encoding="utf-8")
