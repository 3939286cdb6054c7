"""One study of 14 cells with every kind of failure forced: the rest is measured, the report gives reasons."""

import json

import pandas as pd
import pytest

from tests.checkout import Checkout

STUDY = """
study: failures
corpus: {source: path, path: text.txt}
devices: [{id: cpu, type: cpu, threads: 1, memory_gib: 0.01}]
models:
  - {name: sound, architecture: gpt2, n_layer: 1, n_head: 2, n_embd: 16}
  - {name: killed, architecture: gpt2, n_layer: 1, n_head: 2, n_embd: 16}
  - {name: out_of_memory, architecture: gpt2, n_layer: 1, n_head: 2, n_embd: 16}
  - {name: hanging, architecture: gpt2, n_layer: 1, n_head: 2, n_embd: 16}
  - {name: not_a_number, architecture: gpt2, n_layer: 1, n_head: 2, n_embd: 16}
grid:
  measure: {min_samples: 5, target_interval: 0.5, max_seconds: 0.2, timeout_s: 30}
  products:
    - {models: [sound], batch_size: [1, 2, 3], sequence_length: [8, 16], precision: [fp32], execution: [eager]}
    - models: [killed, out_of_memory, hanging, not_a_number]
      batch_size: [1]
      sequence_length: [8]
      precision: [fp32]
      execution: [eager]
    - {models: [sound], batch_size: [1], sequence_length: [8], precision: [fp32], execution: [graphed, compiled]}
    - models: [sound]
      batch_size: [512, 1024]
      sequence_length: [16]
      precision: [fp32]
      execution: [eager]
      memory: true
calibration: {sustain_s: 0.05, operators_s: 0.25}
selection: null
recommendation: null
training: {models: []}
"""

# What goes wrong in the measuring process of the model of that name, where its tokens are loaded.
FAULTS = """

def _fault(name):
    import os, signal, time

    if name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "out_of_memory":
        torch.empty(1 << 60, dtype=torch.uint8)
    if name == "hanging":
        time.sleep(600)


def _faulty(measure):
    def measure_cell(arguments, send):
        name = arguments["cell"]["name"]
        _fault(name)
        if name == "not_a_number":
            TrainStep.build = _broken(TrainStep.build)
        return measure(arguments, send)

    return measure_cell


def _broken(build):
    def build_step(*arguments):
        step = build(*arguments)
        with torch.no_grad():
            step.decoder.token_embedding.weight.fill_(float("nan"))
        return step

    return build_step


measure_cell = _faulty(measure_cell)
"""


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    checkout = Checkout.clone(tmp_path_factory.mktemp("failures") / "assay", "failures.yaml")
    (checkout.folder / "failures.yaml").write_text(STUDY.replace("timeout_s: 60", "timeout_s: 25"), encoding="utf-8")
    checkout.append("workflow_scripts/lib/cell.py", FAULTS)
    checkout.said = checkout.snakemake(CXX="no-such-compiler")
    return checkout


def test_every_failure_is_a_record_and_the_rest_is_measured(failed):
    assert failed.said.returncode == 0, failed.said.stdout + failed.said.stderr
    cells = pd.read_csv(failed.folder / "results/failures/tables/cells.csv").set_index("cell")
    assert len(cells) == 14
    status = cells["status"].to_dict()
    assert status.pop("killed-b1-t8-fp32-eager") == "killed"
    assert status.pop("out_of_memory-b1-t8-fp32-eager") == "oom"
    assert status.pop("hanging-b1-t8-fp32-eager") == "timeout"
    assert status.pop("not_a_number-b1-t8-fp32-eager") == "diverged"
    assert status.pop("sound-b1-t8-fp32-graphed") == "unavailable"
    assert status.pop("sound-b1-t8-fp32-compiled") == "unavailable"
    assert status.pop("sound-b1024-t16-fp32-eager") == "predicted_oom"
    assert set(status.values()) == {"ok"}
    bad = cells[cells["status"] != "ok"]
    assert bad["reason"].notna().all()
    assert bad["step_time_s"].isna().all()


def test_one_cell_beyond_the_border_is_tried_and_the_prediction_judged(failed):
    fits = pd.read_csv(failed.folder / "results/failures/tables/fits.csv").set_index("cell")
    assert fits.loc["sound-b512-t16-fp32-eager", ["decision", "judgement"]].to_list() == ["tried beyond", "right"]
    assert fits.loc["sound-b1024-t16-fp32-eager", ["decision", "judgement"]].to_list() == ["left out", "not judged"]
    tried, left_out = (fits.loc[f"sound-b{n}-t16-fp32-eager"] for n in (512, 1024))
    assert left_out["needed_bytes"] > tried["peak_allocated_bytes"] > tried["limit_bytes"] == int(0.01 * 2**30)
    assert fits.drop([tried.name, left_out.name])["decision"].eq("fits").all()
    memory = pd.read_csv(failed.folder / "results/failures/tables/memory.csv").set_index("cell")
    assert memory["status"].to_dict() == {tried.name: "ok", left_out.name: "predicted_oom"}


def test_the_report_shows_what_was_measured_and_each_reason(failed):
    page = (failed.folder / "results/failures/report.html").read_text(encoding="utf-8")
    for record in (failed.folder / "results/failures/devices/cpu/cells").glob("*.json"):
        record = json.loads(record.read_text(encoding="utf-8"))
        assert record["id"] in page
        if record["status"] != "ok":
            assert record["status"] in page


def test_the_run_says_how_many_failed(failed):
    sentence = "7 of 14 cells were timed (1 diverged, 1 killed, 1 oom, 1 predicted_oom, 1 timeout, 2 unavailable)"
    assert sentence in failed.said.stdout + failed.said.stderr
