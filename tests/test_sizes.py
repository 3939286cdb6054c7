"""Passes beside each other, what precision is worth, what fits, isolation: tables, figures and sentences of each."""

import math

import pandas as pd
import pytest

from tests import example_tables
from workflow_scripts import draw_sizes, draw_speedups
from workflow_scripts.lib import csv_tables, isolation_table, page, room_table, sizes_section, sizes_table, variability
from workflow_scripts.lib.fits import GIB, N_RATES, Room, needed_bytes
from workflow_scripts.lib.gpu import UNKNOWN, Gpu
from workflow_scripts.lib.specs import ModelShape, OptimizerSpec, StepSpec, to_json

SHARES = {"forward": 0.25, "forward_backward": 0.9, "step": 1.0}
SHAPE = ModelShape(architecture="llama", n_layer=4, n_head=4, n_embd=128, n_inner=512, vocab_size=500,
                   sequence_length=64, bias=False)  # fmt: skip
ADAMW = OptimizerSpec(
    name="adamw", learning_rate=1e-4, min_learning_rate=1e-4, warmup_steps=0, decay_steps=1, schedule="constant",
    weight_decay=0.1, beta1=0.9, beta2=0.95, momentum=0.0, grad_clip=1.0,
)  # fmt: skip


def cells() -> pd.DataFrame:
    """The example's cells in three passes."""
    steps = example_tables.cells()
    times = [name for name in steps.columns if name.startswith("step_time_")]
    parts = []
    for mode, share in SHARES.items():
        part = steps.assign(mode=mode, cell=steps.cell + "-" + mode)
        part[times] = part[times] * share
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def tables() -> dict[str, pd.DataFrame]:
    passes = pd.DataFrame(sizes_table.pass_rows(cells()), columns=sizes_table.PASS_COLUMNS)
    speedups = sizes_table.speedup_rows(cells(), example_tables.processes())
    rows = [row for record in grid() for row in room_table.room_rows([record], ROOM, {})]
    return {
        "passes": passes, "speedups": pd.DataFrame(speedups, columns=sizes_table.SPEEDUP_COLUMNS),
        "room": pd.DataFrame(rows, columns=room_table.ROOM_COLUMNS),
        "isolation": pd.DataFrame(isolation_table.isolation_rows(isolation(), "x/isolation.json"),
                                  columns=isolation_table.ISOLATION_COLUMNS),
    }  # fmt: skip


def test_a_backward_pass_is_what_a_forward_leaves_of_both():
    rows = pd.DataFrame(sizes_table.pass_rows(cells()))
    for _, group in rows.groupby([*sizes_table.WORK, *sizes_table.WAY]):
        by = group.set_index("pass")
        assert by.time_s["backward"] == pytest.approx(by.time_s["forward_backward"] - by.time_s["forward"])
        assert by.over_forward["backward"] == pytest.approx(0.65 / 0.25)
        assert by.over_forward_low["backward"] < by.over_forward["backward"] < by.over_forward_high["backward"]
        assert by.std_s["update"] == pytest.approx(math.hypot(by.std_s["step"], by.std_s["forward_backward"]))
        assert by.time_low_s["backward"] == pytest.approx(by.time_low_s["forward_backward"] - by.time_high_s["forward"])


def test_a_pass_that_failed_gives_no_difference():
    broken = cells()
    broken.loc[broken["mode"] == "forward", ["status", "step_time_s"]] = ["oom", float("nan")]
    rows = pd.DataFrame(sizes_table.pass_rows(broken))
    assert "backward" not in set(rows["pass"])
    assert set(rows[rows["pass"] == "forward"].status) == {"oom"}


def test_speedups_are_over_fp32_eager_at_the_same_work():
    rows = pd.DataFrame(sizes_table.speedup_rows(cells(), example_tables.processes()))
    assert set(rows.precision) == {"bf16"}
    assert len(rows) == 3 * 3  # models, passes: bf16 was timed at one batch and context
    for row in rows.itertuples():
        assert row.speedup == pytest.approx(row.base_time_s / row.time_s)
        assert row.low < row.speedup < row.high
        assert row.verdict == ("slower" if row.high < 1 else row.verdict)


ROOM = Room(type="cuda", limit_bytes=GIB, capped=False, gpu=Gpu(compute_capability="9.0"), threads=1, data_bytes=0)


def cell(batch: int, status: str = "ok") -> tuple[dict, str]:
    spec = {"name": "small", "mode": "step", "process": 1, "device": {"id": "gpu"}, "model": to_json(SHAPE),
            "step": to_json(StepSpec(batch_size=batch, precision="fp32", execution="eager")),
            "optimizer": to_json(ADAMW)}  # fmt: skip
    return {"id": f"small-b{batch}", "spec": spec, "status": status, "result": {}}, f"cells/small-b{batch}.json"


def grid() -> list[tuple[dict, str]]:
    return [cell(4)]


def test_the_largest_batch_is_the_last_that_fits():
    (row,) = room_table.room_rows([cell(4)], ROOM, {})
    largest = row["largest_batch"]
    sizes = [needed_bytes(ROOM, SHAPE, StepSpec(batch_size=n, precision="fp32", execution="eager"), ADAMW, N_RATES)
             for n in (largest, largest + 1)]  # fmt: skip
    assert sizes[0] <= GIB < sizes[1]
    assert row["largest_batch_checkpointed"] > largest
    assert row["largest_context"] > SHAPE.sequence_length
    assert row["checked"] == room_table.OPEN


def test_cells_near_the_border_judge_the_prediction():
    (row,) = room_table.room_rows([cell(4)], ROOM, {})
    largest = row["largest_batch"]

    def judged(*members, where=ROOM, peaks=None):
        return room_table.room_rows([cell(4), *members], where, peaks or {})[0]["checked"]

    assert judged(cell(largest)) == room_table.HALF
    assert judged(cell(largest), cell(largest + 1, "oom")) == room_table.HOLDS
    assert judged(cell(largest, "oom")) == room_table.WRONG
    assert judged(cell(largest + 1)) == room_table.WRONG
    capped = Room(type="cpu", limit_bytes=GIB, capped=True, gpu=UNKNOWN, threads=1, data_bytes=0)
    assert judged(cell(largest + 1), where=capped) == room_table.OPEN  # a cap stops nothing
    assert judged(cell(10 * largest), where=capped, peaks={f"small-b{10 * largest}": 2 * GIB}) == room_table.OPEN
    assert judged(cell(10 * largest), where=capped, peaks={f"small-b{10 * largest}": GIB / 2}) == room_table.WRONG


def isolation() -> dict:
    cells = [{"id": f"c{n}", "name": "small", "mode": "step", "step": {"precision": "fp32", "execution": "eager"}}
             for n in (1, 2)]  # fmt: skip
    rows = [
        {"cell": f"c{n}", "of": of, "place": n, "status": "ok", "reason": "", "cold_s": [0.5 / of],
         "samples_s": [t] * 20,
         "memory": {"peak_allocated_bytes": 100 + n * of}, "peak_process_bytes": 1000 * n * of}
        for n, of, t in ((1, 2, 0.010), (2, 2, 0.012), (1, 1, 0.010), (2, 1, 0.010))
    ]  # fmt: skip
    spec = {"device": {"id": "gpu"}, "cells": cells, "kind": "isolation"}
    return {"id": "isolation", "status": "ok", "reason": "", "spec": spec, "result": {"rows": rows}}


def test_isolation_sets_one_process_beside_one_for_each():
    first, second = isolation_table.isolation_rows(isolation(), "x/isolation.json")
    assert (first["verdict"], second["verdict"]) == ("same", "slower")
    assert second["time_ratio"] == pytest.approx(1.2)
    assert (second["together_peak_allocated_bytes"], second["alone_peak_allocated_bytes"]) == (104, 102)
    record = isolation()
    del record["result"]["rows"][1]
    _, second = isolation_table.isolation_rows(record, "x/isolation.json")
    assert (second["status"], second["reason"]) == ("error", "it left no result")
    assert "time_ratio" not in second


def test_figures_draw_the_models_of_one_work(tmp_path):
    found = tables()
    for name, script, given in (("sizes", draw_sizes, "passes"), ("speedups", draw_speedups, "speedups")):
        csv_tables.write(found[given], tmp_path / f"{given}.csv")
        figure, data = tmp_path / f"{name}.svg", tmp_path / f"{name}.csv"
        script.main(**{given: tmp_path / f"{given}.csv"}, figure=figure, data=data, spec={})
        drawn = csv_tables.read(data)
        assert drawn.model.nunique() == 3
        assert drawn.sequence_length.nunique() == drawn.batch_size.nunique() == 1
        assert "data-caption" in figure.read_text()
        csv_tables.write(found[given].head(1), tmp_path / f"{given}.csv")
        script.main(**{given: tmp_path / f"{given}.csv"}, figure=figure, data=data, spec={})
        assert "data-nothing" in figure.read_text()


def test_the_report_has_five_parts_and_few_models_only_isolation():
    parts = sizes_section.section(tables(), {"gpu": "a GPU"}, "example")
    assert len(parts) == 5
    text = " ".join(page.plain(sentence) for part in parts for sentence in part.sentences)
    assert "2.60×" in text  # backward over forward
    assert "1.20× (1.20–1.20) the time that it takes alone" in text
    few = tables()
    few["passes"] = few["passes"][few["passes"].model == "wide"]
    assert [part.title for part in sizes_section.section(few, {}, "s")] == ["One process for all, or one for each"]
    assert sizes_section.section({}, {}, "s") == []


def test_what_does_not_fit_is_told_with_what_would():
    tight = Room(
        type="cuda", limit_bytes=GIB // 4, capped=False, gpu=Gpu(compute_capability="9.0"), threads=1, data_bytes=0
    )
    rows = pd.DataFrame(room_table.room_rows([cell(64), cell(128)], tight, {}))
    (part,) = [sizes_section._room(rows, {"gpu": "a GPU"}, "s")]
    assert "does not fit" in part.sentences[0]
    assert f"a batch of {rows.largest_batch.iloc[0]:,}" in part.sentences[0]


def test_what_all_rows_share_keeps_its_unit():
    rows = pd.DataFrame({"limit_bytes": [2.0 * GIB] * 2, "model": ["a", "b"]})
    columns = [page.Column(name="model", title="model"),
               page.Column(name="limit_bytes", title="of", kind="bytes", axis=True)]  # fmt: skip
    assert page.table(rows, columns, "s").common == [("of", "2.00\u00a0GiB")]


def test_rows_stand_from_small_to_large_and_from_exact_to_coarse():
    rows = pd.DataFrame({"n_params": [2, 1, 1, 1], "precision": ["fp32", "bf16", "fp32", "fp32"],
                         "execution": ["eager", "eager", "compiled", "eager"], "pass": ["step"] * 4})  # fmt: skip
    assert list(sizes_table.in_order(rows).index) == [3, 2, 1, 0]


def unsteady(**recorded: object) -> list[str]:
    """What is said of ten cells, two of them steady."""
    rows = pd.DataFrame({"device": "gpu", "status": "ok", "execution": ["graphed"] * 2 + ["eager"] * 8,
                         "step_time_mean_s": 1.0, "step_time_std_s": [0.003] * 2 + [0.2] * 8,
                         "predicted_bound": None, "others_cores": None, "throttle": None})  # fmt: skip
    return list(variability.causes(rows.assign(**recorded), {"gpu": "a GPU"}))


def test_what_is_advised_follows_from_what_was_recorded():
    counted, advice = unsteady(predicted_bound="launch", throttle="none")
    assert "8 vary by more than 5.0\u00a0%; of these 8 wait for launches" in counted
    assert "0 ran on a throttled device" in counted
    assert "0.30\u00a0%" in advice
    assert "nothing else to do" in unsteady(others_cores=1.5)[1]
    assert "No one cause" in unsteady(others_cores=0.0)[1]
    assert "nothing was recorded" in unsteady()[0]
    assert "None of 10" in unsteady(step_time_std_s=0.01)[0]
