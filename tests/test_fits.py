"""What fits: limits of devices, the border of a grid, what becomes of a cell beyond it, and how it is judged."""

import dataclasses
import json

import pytest

from tests.tiny_run import CELL, CPU, write_calibration
from workflow_scripts import benchmark_cell
from workflow_scripts.lib.devices import resolve_devices
from workflow_scripts.lib.fit_table import FITS, LEFT_OUT, OPEN, RIGHT, TRIED, WRONG_FIT, WRONG_SKIP, judge
from workflow_scripts.lib.fits import GIB, MARGIN, Room, beyond, caps, needed_bytes, outsized, room
from workflow_scripts.lib.gpu import UNKNOWN
from workflow_scripts.lib.isolation import run_isolated
from workflow_scripts.lib.memory_model import N_RATES
from workflow_scripts.lib.specs import to_json
from workflow_scripts.lib.tables import cell_row

HOST = {"id": "cpu", "type": "cpu", "index": None, "name": "chip", "threads": 1, "logical_cores": 2}
HERE = Room(type="cpu", limit_bytes=None, capped=False, gpu=UNKNOWN, threads=1, data_bytes=0)


def cell(batch_size, process=1, **changes):
    step = dataclasses.replace(CELL.step, batch_size=batch_size, **changes)
    name = f"b{batch_size}-{step.precision}" + (f"-p{process}" if process > 1 else "")
    return dataclasses.replace(CELL, id=name, step=step, process=process)


def needs(one):
    return needed_bytes(HERE, one.model, one.step, one.optimizer, N_RATES, one.mode)


def test_a_limit_is_whole_gib_less_the_reserve_so_that_noise_changes_nothing():
    limits = {room(CPU, None, [HOST | {"memory_bytes": int(size * GIB)}], 65, 100).limit_bytes for size in (15.6, 15.9)}
    assert limits == {int(13.5 * GIB)}
    assert room(CPU, None, [HOST | {"memory_bytes": None}], 65, 100).limit_bytes is None


def test_a_cap_of_the_config_holds_where_it_is_less():
    detected = [HOST | {"memory_bytes": 8 * GIB}]
    asked = [{"id": "small", "type": "cpu", "memory_gib": 0.5}, {"id": "all", "type": "cpu", "threads": 2}]
    devices = resolve_devices(asked, detected)
    assert caps(asked, devices) == {"small": 0.5}
    assert caps("auto", devices) == caps(["cpu", "mps"], devices) == {}
    capped, vast = (room(CPU, cap, detected, 65, 100) for cap in (0.5, 64.0))
    assert (capped.limit_bytes, capped.capped) == (GIB // 2, True)
    assert (vast.limit_bytes, vast.capped) == (int(6.5 * GIB), False)


def test_of_each_series_the_least_cell_beyond_the_border_is_tried():
    cells = [cell(batch, precision=precision) for batch in (1, 4, 16, 64) for precision in ("fp32", "bf16")]
    cells.append(cell(16, process=2, precision="fp32"))
    limit = needs(cell(4, precision="fp32"))
    found = beyond(cells, dataclasses.replace(HERE, limit_bytes=limit))
    assert {name for name, verdict in found.items() if verdict.tried} == {"b16-fp32", "b16-bf16"}
    assert {name for name, verdict in found.items() if not verdict.tried} == {"b16-fp32-p2", "b64-fp32", "b64-bf16"}
    assert found["b64-fp32"].needed_bytes > found["b16-fp32"].needed_bytes > limit
    assert beyond(cells, HERE) == {}


def test_a_training_says_what_it_needs_only_where_it_is_too_much():
    one = cell(4)
    needed = needs(one)
    asked = (one.model, one.step, one.optimizer, N_RATES)
    assert outsized(dataclasses.replace(HERE, limit_bytes=needed), *asked) == {}
    assert outsized(dataclasses.replace(HERE, limit_bytes=needed - 1), *asked) == {"predicted_oom": needed}
    assert outsized(HERE, *asked) == {}


def test_on_a_gpu_tokens_and_windows_count():
    gpu = dataclasses.replace(HERE, type="cuda", data_bytes=10**6)
    one = cell(4)
    apart = [needed_bytes(gpu, one.model, one.step, one.optimizer, n) for n in (0, 1000)]
    assert apart[1] - apart[0] == pytest.approx(MARGIN * 8 * 1000 * 4, abs=2)


def test_a_cell_that_is_left_out_is_a_record_with_the_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark_cell, "run_isolated", lambda *a, **k: pytest.fail("nothing may be started"))
    record = tmp_path / "record.json"
    benchmark_cell.main(
        tokens=tmp_path, corpus=tmp_path, device=tmp_path, calibration=write_calibration(tmp_path), record=record,
        spec={"study": "tiny", "code": "c0de", "environment": {}, "cell": to_json(CELL), "predicted_oom": 5 * GIB},
    )  # fmt: skip
    written = json.loads(record.read_text())
    assert (written["status"], written["result"]) == ("predicted_oom", {"predicted_bytes": 5 * GIB})
    assert "5 GiB" in written["reason"]
    row = cell_row(record)
    assert (row["status"], row["step_time_s"], row["peak_allocated_bytes"]) == ("predicted_oom", None, None)


@pytest.mark.parametrize(
    ("decision", "status", "measured", "capped", "judgement"),
    [
        (FITS, "ok", None, False, RIGHT),
        (FITS, "ok", None, True, OPEN),  # nobody looked whether the cap was kept
        (FITS, "ok", 90, True, RIGHT),
        (FITS, "ok", 110, True, WRONG_FIT),
        (FITS, "oom", None, False, WRONG_FIT),
        (FITS, "timeout", None, False, OPEN),
        (TRIED, "oom", None, False, RIGHT),
        (TRIED, "ok", 110, True, RIGHT),
        (TRIED, "ok", 90, True, WRONG_SKIP),
        (TRIED, "ok", None, False, WRONG_SKIP),
        (LEFT_OUT, "predicted_oom", None, False, OPEN),
    ],
)
def test_decisions_are_judged_by_what_happened(decision, status, measured, capped, judgement):
    assert judge(decision, status, measured, limit_bytes=100, capped=capped) == judgement


def test_a_measuring_process_is_the_first_to_go_when_the_host_runs_out(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_RUNTIME_DIR", str(tmp_path))
    outcome = run_isolated("tests.isolation_targets:oom_score", {}, device=CPU, timeout_s=60.0)
    assert outcome.result in ({"oom_score_adj": 1000}, {"oom_score_adj": None})
