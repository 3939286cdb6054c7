"""The audit of a study's own tables: silent on sound ones, and on each fault the finding that names the row."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests import example_probes, example_tables
from tests.tiny_run import ADAMW
from workflow_scripts import audit_study
from workflow_scripts.lib.audit import own_devices
from workflow_scripts.lib.specs import to_json

INPUTS = ("cells", "runs", "processes", "operators", "devices", "ceilings")


def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_selection: bool = True, **tables: Any) -> list[dict]:
    """Runs the script on the example study with some tables replaced; returns the findings."""
    monkeypatch.chdir(tmp_path)
    paths = example_tables.write_study(tmp_path, **tables)
    findings = tmp_path / "findings.json"
    audit_study.main(
        **{name: paths[name] for name in INPUTS},
        selection=[paths["selection"]] if with_selection else [],
        **{name: path for name, path in example_probes.write(tmp_path / "probes").items() if "operator" in name},
        recordings=[],
        corpus=tmp_path / "corpus.json",
        findings=findings,
        spec={"runs": []},
    )
    return json.loads(findings.read_text(encoding="utf-8"))


def record(folder: Path, row: pd.Series, **observed: Any) -> None:
    """Leaves the record of a cell, as its process would, with some of what was observed replaced."""
    path = folder / row.record
    path.parent.mkdir(parents=True, exist_ok=True)
    step = {"batch_size": int(row.batch_size), "accumulation": 1, "precision": row.precision, "execution": "eager"}
    seen = {
        "device": "cpu",
        "threads": 2,
        "linear_output_dtype": {"bf16": "torch.bfloat16"}.get(row.precision, "torch.float32"),
    }
    seen |= {"product_precision": "ieee", "optimizer_class": "AdamW", "accumulation": 1, "attention_backend": "flash"}
    result = {"samples_s": [row.step_time_s] * 12, "observed": {**seen, "n_graphs": 0, "captured": [], **observed}}
    spec = {"device": {"type": "cpu"}, "step": step, "optimizer": {"name": "adamw", "learning_rate": 1e-3}}
    path.write_text(json.dumps({"spec": spec, "result": result}), encoding="utf-8")


def about(findings: list[dict], rule: str) -> list[str]:
    return [finding["subject"] for finding in findings if finding["rule"] == rule and finding["severity"] != "note"]


def test_sound_study_has_no_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cells = example_tables.cells()
    for _, row in cells.iterrows():
        record(tmp_path, row)
    failed = tmp_path / cells.record.iloc[-1]  # numbers of the others become floats beside its missing ones
    failed.write_text(json.dumps(json.loads(failed.read_text()) | {"result": None}))
    findings = audit(tmp_path, monkeypatch)
    # The example's two models differ by 11 % in what they are said to be matched on.
    assert [(f["rule"], f["subject"]) for f in findings if f["severity"] == "error"] == [
        ("matched_on", "wide and deep")
    ]
    assert about(findings, "read_back") == []


def test_empty_tables_are_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    empty = {name: getattr(example_tables, name)().iloc[:0] for name in INPUTS}
    assert audit(tmp_path, monkeypatch, with_selection=False, **empty) == []


def test_tables_without_a_column_are_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert (
        audit(tmp_path, monkeypatch, with_selection=False, **{name: pd.DataFrame({"device": []}) for name in INPUTS})
        == []
    )


def test_slow_cell_is_named_as_the_report_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cells = example_tables.cells()
    slow = cells.cell == "wide-b16-t128-fp32"
    for column in ("step_time_s", "step_time_low_s", "step_time_high_s", "step_time_mean_s"):
        cells.loc[slow, column] *= 9
    cells.loc[slow, "achieved_flop_per_s"] /= 9
    findings = audit(tmp_path, monkeypatch, cells=cells)
    assert "cpu/wide-b16-t128-fp32" in about(findings, "rate_collapse")


def test_precision_that_was_ignored_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cells = example_tables.cells()
    for _, row in cells.iterrows():
        record(tmp_path, row, linear_output_dtype="torch.float32")
    assert set(about(audit(tmp_path, monkeypatch), "read_back")) == {
        f"cpu/{cell}" for cell in cells.cell[cells.precision == "bf16"]
    }


def test_threads_that_were_throttled_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cells = example_tables.cells()
    record(tmp_path, cells.iloc[0], threads=1)
    findings = audit(tmp_path, monkeypatch)
    assert about(findings, "read_back") == [f"cpu/{cells.cell.iloc[0]}"]


@pytest.mark.parametrize(("held", "faulty"), [([5.5e-4], False), ([5.5e-4, 1e-3], True)])
def test_a_learning_rate_that_left_its_schedule_is_found(tmp_path, monkeypatch, held, faulty):
    row = example_tables.cells().iloc[0]
    record(tmp_path, row, rate_index=50, learning_rates=[np.float32(rate).item() for rate in held])
    path = tmp_path / row.record
    changed = json.loads(path.read_text())
    cosine = {"schedule": "cosine", "learning_rate": 1e-3, "min_learning_rate": 1e-4, "warmup_steps": 0}
    changed["spec"]["optimizer"] = to_json(dataclasses.replace(ADAMW, **cosine, decay_steps=100))
    path.write_text(json.dumps(changed))
    messages = [f["message"] for f in audit(tmp_path, monkeypatch) if f["subject"] == f"cpu/{row.cell}"]
    wrong = "learning rate of the last step 0.00055 asked, 0.001 observed"
    assert (wrong in messages) == faulty


def test_runs_that_were_evaluated_on_other_windows_are_found(tmp_path, monkeypatch):
    runs = example_tables.runs()
    for index, row in runs.iterrows():
        record(tmp_path, row.drop("execution", errors="ignore"))
        path = tmp_path / row.record
        windows = {"eval_windows_sha256": "other" if index == 0 else "same"}
        path.write_text(json.dumps({**json.loads(path.read_text()), "result": windows}))
    assert about(audit(tmp_path, monkeypatch), "unequal_evaluation") == [f"cpu/{runs.run.iloc[0]}"]


def test_a_fresh_process_is_not_held_against_forked_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cells = example_tables.cells()
    small = cells.index[cells.model.eq("narrow") & cells.batch_size.isin([2, 8])][0]
    cells["peak_process_bytes"] = 280e6
    cells.loc[small, "peak_process_bytes"] = 330e6
    for index, row in cells.iterrows():
        record(tmp_path, row)
        path = tmp_path / row.record
        path.write_text(json.dumps(json.loads(path.read_text()) | {"start": "fresh" if index == small else "forked"}))
    assert about(audit(tmp_path, monkeypatch, cells=cells), "memory_falls") == []
    path = tmp_path / cells.loc[small, "record"]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"start": "forked"}))
    assert about(audit(tmp_path, monkeypatch, cells=cells), "memory_falls") != []


@pytest.mark.parametrize(
    ("ratio", "severity", "words"),
    [(1.1, "error", "1.10× the time: the timer does not wait"), (3.4, "warning", "disturbed"), (None, "note", "no ")],
)
def test_a_clock_that_did_not_wait_is_found(tmp_path, monkeypatch, ratio, severity, words):
    devices = example_tables.devices().assign(sync_check_ratio=ratio)
    found = [f for f in audit(tmp_path, monkeypatch, devices=devices) if f["rule"] == "synchronisation"]
    assert [(f["severity"], words in f["message"]) for f in found] == [(severity, True)]


def test_drifting_samples_are_read_from_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    row = example_tables.cells().iloc[0]
    record(tmp_path, row)
    path = tmp_path / row.record
    changed = json.loads(path.read_text())
    changed["result"]["samples_s"] = [0.03 * (1 + 0.01 * index) for index in range(30)]
    path.write_text(json.dumps(changed))
    assert about(audit(tmp_path, monkeypatch), "drift") == [f"cpu/{row.cell}"]


def test_failed_cell_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cells = example_tables.cells(failures={"wide-b16-t128-fp32": "oom"})
    (finding,) = [f for f in audit(tmp_path, monkeypatch, cells=cells) if f["rule"] == "no_result"]
    assert (finding["severity"], finding["subject"]) == ("note", "cpu/wide-b16-t128-fp32")
    assert "9.1 GiB" in finding["message"]


def test_treatment_with_fewer_tokens_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runs = example_tables.runs()
    half = runs.assign(
        treatment="half_batch", run=runs.run + "-half", n_tokens=runs.n_tokens / 2, train_s=runs.train_s * 0.8
    )
    half["final_val_loss"] += 0.2
    findings = audit(tmp_path, monkeypatch, runs=pd.concat([runs, half], ignore_index=True))
    assert set(about(findings, "unequal_tokens")) == {f"cpu/{run}" for run in half.run}


def test_rate_above_the_measured_ceiling_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cells, ceilings = example_tables.cells(), example_tables.ceilings()
    products = ceilings["quantity"] == "matrix_product"
    sound = ceilings.assign(best=ceilings["value"].where(~products, 1e18))
    assert not about(audit(tmp_path, monkeypatch, cells=cells, ceilings=sound), "impossible_rate")
    low = ceilings.assign(best=ceilings["value"].where(~products, 1.0))
    assert about(audit(tmp_path, monkeypatch, cells=cells, ceilings=low), "impossible_rate")


def test_calls_that_do_not_follow_from_the_layers_are_told(tmp_path, monkeypatch):
    wrong = example_probes.operators(n_products=14.0)
    monkeypatch.setattr(example_probes, "operators", lambda: wrong)
    found = [finding for finding in audit(tmp_path, monkeypatch) if finding["rule"] == "calls_follow_layers"]
    assert {finding["subject"] for finding in found} == {"h100/operators"}
    assert found[0]["numbers"] == {"found": 14.0, "expected": 13.0}


def test_a_recording_is_of_other_code_only_where_no_script_here_would_have_made_it():
    here = {"code": {"cell": ["grid", "check"], "run": ["new"]}, "torch": [], "record_version": 1, "tokens_sha256": "t"}
    theirs = {"device": "box", "torch": ["2"], "record_version": 1, "tokens_sha256": "t"}

    def differ(**code):
        table = own_devices.recordings([{**theirs, "code": code}], here)
        return table[table.recorded_by != table.measured_by].to_dict("records")

    assert differ(cell=["check", "grid"], run=["new"]) == []
    assert differ(cell=["grid"]) == []
    (found,) = differ(cell=["grid", "old"], run=["newer"])
    assert found["part"] == "the code that measured cell and run"
    assert (found["recorded_by"], found["measured_by"]) == ("cell grid old, run newer", "cell grid check, run new")


def test_the_runs_that_a_recording_lacks_are_named():
    members = ["devices/h200/runs/a-s1/run.json", "devices/h200/runs/a-s1/metrics.csv", "devices/h200/device.json"]
    (row,) = own_devices.recorded_runs([{"device": "h200", "members": members}], ["a-s1", "a-s2"]).to_dict("records")
    assert (row["n_planned"], row["n_lacking"], row["lacking"]) == (2, 1, ["a-s2"])
