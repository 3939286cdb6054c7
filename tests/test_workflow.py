"""The whole workflow, for real, at its smallest; again, when it must do nothing; and after each kind of change."""

import json
import re
import shutil

import pandas as pd
import pytest

from tests.checkout import Checkout

MEASURING = {"identify_device", "calibrate_device", "benchmark_cell", "train_model", "profile_model"}
TRAINING = {"train_model", "profile_model"}
AFTER_TRAINING = {"collect_runs", "audit_study", "render_report"}


def results(checkout):
    return checkout.folder / "results" / "tiny"


def test_it_runs_every_stage_and_leaves_every_artifact(finished):
    assert finished.executed["train_model"] == 4
    assert finished.executed["benchmark_cell"] == 10
    assert finished.executed["measure_memory"] == finished.executed["cross_check_timers"] == 1
    assert finished.executed["run_probe"] == 2
    folder = results(finished)
    for name in ("study.yaml", "corpus/corpus.json", "devices/cpu/device.json", "selection.json", "cost_model.json",
                 "devices/cpu/runs/wide-s1/model.safetensors", "devices/cpu/profiles/deep/trace.json.gz",
                 "tables/memory.csv", "tables/timers.csv", "devices/cpu/probes/sums.json",
                 "tables/candidates.csv", "tables/recommendation.csv",
                 "recommendation.json", "devices/cpu/recommended.json", "findings.json", "report.html"):  # fmt: skip
        assert (folder / name).stat().st_size > 0, name
    assert list((folder / "figures").glob("*.svg"))
    cells = pd.read_csv(folder / "tables/cells.csv")
    assert set(cells["status"]) == {"ok", "unavailable"}
    refused = cells[cells["status"] == "unavailable"]
    assert list(refused["execution"]) == ["graphed"]
    assert refused["step_time_s"].isna().all()
    assert "CUDA" in refused["reason"].iloc[0]
    measured = cells.dropna(subset=["peak_allocated_bytes"])
    assert list(measured["cell"]) == ["small-b2-t8-fp32-eager"]
    assert (measured["peak_allocated_bytes"] / measured["predicted_peak_bytes"]).between(0.9, 1.1).all()


def test_records_carry_their_provenance(finished):
    record = json.loads((results(finished) / "devices/cpu/cells/small-b2-t8-fp32-eager.json").read_text())
    for key in ("record_version", "status", "spec", "code", "environment", "started_at", "ended_at", "host"):
        assert record[key], key
    assert len(record["result"]["samples_s"]) >= 5
    assert record["result"]["observed"]["threads"] == 1


def test_logs_mirror_results(finished):
    logs = finished.folder / "logs" / "tiny"
    assert (logs / "devices/cpu/runs/wide-s1/run.log").exists()
    assert (logs / "devices/cpu/cells/small-b2-t8-fp32-eager.log").exists()


def test_again_it_does_nothing(finished):
    assert not finished.plan()
    assert not finished.plan("--cores", "1", USER="somebody", HOME="/nowhere")


def test_the_plan_tells_times_as_soon_as_there_is_a_cost_model_and_runs_nothing(finished, tmp_path):
    told = finished.snakemake("--", "plan")
    assert told.returncode == 0, told.stdout + told.stderr
    assert re.search(r"cpu: \d+ cells to time, \d", told.stdout + told.stderr), told.stdout + told.stderr
    assert not finished.plan()
    told = Checkout.clone(tmp_path / "clone", source=finished.folder).snakemake("--", "plan")
    assert told.returncode == 0, told.stdout + told.stderr
    assert "Times are predicted once there is a cost model: results/tiny/cost_model.json" in told.stdout + told.stderr


def test_while_jobs_run_the_engine_waits_instead_of_asking_again(finished):
    asked = finished.said.count("Resources before job selection")
    assert 0 < asked < 2 * finished.executed.total()


def test_elsewhere_touched_and_without_weights_it_does_nothing(finished, tmp_path):
    moved = finished.copy(tmp_path / "moved")
    for path in sorted(moved.folder.rglob("*")):
        if path.is_file() and ".snakemake" not in path.parts:
            path.touch()
    for weights in results(moved).rglob("*.safetensors"):
        weights.unlink()
    assert not moved.plan()


def test_a_fresh_clone_beside_kept_results_does_nothing(finished, tmp_path):
    clone = Checkout.clone(tmp_path / "clone", source=finished.folder)
    shutil.copytree(finished.folder / "results", clone.folder / "results", dirs_exist_ok=True)
    shutil.copytree(finished.folder / ".snakemake", clone.folder / ".snakemake", dirs_exist_ok=True)
    assert not clone.plan()


def test_what_one_machine_packs_another_reads(checkout):
    ran = checkout.run("--", "recording")
    assert ran["pack_recording"] == 1
    assert not MEASURING & set(ran)
    packed = checkout.folder / "recordings/tiny/cpu.zip"
    assert packed.stat().st_size < 200_000
    assert not checkout.plan("--", "recording")
    lost = packed.rename(packed.with_suffix(".lost"))
    assert checkout.plan("--", "recording")["pack_recording"] == 1
    lost.rename(packed)

    checkout.edit(checkout.study, "{id: cpu,", "{id: other,")
    dry = checkout.snakemake("--dry-run")
    assert dry.returncode == 0, dry.stdout + dry.stderr
    assert "recordings/tiny/cpu.zip" in dry.stdout + dry.stderr

    alone = checkout.plan("--config", "devices=[]")
    assert alone["render_report"] == 1
    assert not MEASURING & set(alone)

    checkout.edit(checkout.study, "n_steps: 12", "n_steps: 13")
    refused = checkout.snakemake("--dry-run")
    assert refused.returncode == 1
    line = (refused.stdout + refused.stderr).strip().splitlines()[-1]
    assert line.startswith("recordings/tiny/cpu.zip: training.n_steps is 12 in the recording and 13 here")


def test_a_recording_that_came_along_is_made_anew_by_this_machine(finished, tmp_path):
    clone = Checkout.clone(tmp_path / "clone", source=finished.folder)
    there = clone.folder / "recordings/tiny/cpu.zip"
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_bytes(b"another machine's of the same name")
    assert clone.plan("--config", "recordings=ignore", "--", "recording")["pack_recording"] == 1


@pytest.fixture
def checkout(finished, tmp_path):
    return finished.copy(tmp_path / "assay")


def test_comments_docstrings_and_bookkeeping_run_nothing_again(checkout):
    checkout.append("workflow_scripts/lib/step.py", "\n# a comment\n")
    checkout.append("workflow_scripts/render_report.py", "\n# a comment\n")
    checkout.append("workflow_scripts/lib/records.py", "\nUNUSED = 1\n")
    checkout.append("workflow_scripts/lib/job.py", "\nUNUSED = 1\n")
    assert not checkout.plan()


def test_a_template_renders_the_report_only(checkout):
    checkout.append("report/report.html.j2", "<!-- later -->\n")
    assert checkout.plan() == {"render_report": 1}


def test_plotting_redraws_figures_and_report_and_measures_nothing(checkout):
    checkout.append("workflow_scripts/lib/plotting.py", "\nUNUSED = 1\n")
    plan = checkout.plan()
    assert plan.pop("render_report") == 1
    assert plan
    assert all(rule.startswith("draw_") for rule in plan)


def test_a_training_value_trains_again_and_measures_no_cell(checkout):
    checkout.edit(
        "tests/tiny.yaml", "evaluation: {every_steps: 5, windows: 4}", "evaluation: {every_steps: 6, windows: 4}"
    )
    plan = checkout.plan()
    assert plan["train_model"] == 4
    assert plan["resolve_study"] == 1
    assert set(plan) >= AFTER_TRAINING
    assert not {"benchmark_cell", "profile_model", "prepare_corpus", "collect_cells", "select_models"} & set(plan)


def test_the_step_measures_and_trains_again(checkout):
    checkout.append("workflow_scripts/lib/step.py", "\nUNUSED = 1\n")
    plan = checkout.plan()
    assert plan["benchmark_cell"] == 10
    assert "prepare_corpus" not in plan


def test_one_more_cell_is_measured_alone_and_an_equal_selection_trains_nothing(checkout):
    checkout.edit("tests/tiny.yaml", "batch_size: [2, 4]", "batch_size: [2, 4, 6]")
    checkout.edit("tests/tiny.yaml", "models: [small, large], ", "models: [large, small], ")
    plan = checkout.plan()
    assert plan["benchmark_cell"] == 4
    executed = checkout.run("--", "results/tiny/findings.json")
    assert executed["benchmark_cell"] == 4
    assert executed["select_models"] == 1
    assert not TRAINING & set(executed)
    left = checkout.plan()
    assert left["render_report"] == 1
    assert not {"benchmark_cell", "select_models", "audit_study", *TRAINING} & set(left)


def test_an_equal_recommendation_is_not_timed_again(checkout):
    checkout.append("workflow_scripts/recommend_training.py", "\nUNUSED = 1\n")
    assert checkout.run("--", "results/tiny/devices/cpu/recommended.json") == {"recommend_training": 1}
    assert not checkout.plan()


def test_a_broken_script_fails_until_it_is_mended_and_then_only_what_follows_runs(checkout):
    path = "workflow_scripts/collect_devices.py"
    checkout.edit(path, "    found = [", "    raise RuntimeError('the shelf fell over')\n    found = [")
    for _ in range(2):
        failed = checkout.snakemake()
        assert failed.returncode != 0
        assert "the shelf fell over" in failed.stdout + failed.stderr
    assert "the shelf fell over" in (checkout.folder / "logs/tiny/tables/devices.log").read_text()
    checkout.edit(path, "    raise RuntimeError('the shelf fell over')\n", "")
    plan = checkout.plan()
    assert plan["collect_devices"] == 1
    assert plan["render_report"] == 1
    assert not {"benchmark_cell", "train_model", "collect_cells"} & set(plan)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A checkout without results."""
    return Checkout.clone(tmp_path_factory.mktemp("clone") / "assay")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("study: tiny", "study: tiny\nsteps: 3", "steps is not a key"),
        ("path: text.txt", "path: missing.txt", "missing.txt"),
        ("type: cpu, threads: 1", "type: cuda, index: 7", "cuda"),
        ("n_steps: 12", "n_steps: 012", "octal"),
        ("sequence_length: [8, 16]", "sequence_length: [8, 100000]", "100001"),
    ],
)
def test_bad_input_is_one_clear_error_before_any_job(clone, old, new, words):
    clone.edit("tests/tiny.yaml", old, new)
    refused = clone.snakemake("--dry-run")
    clone.edit("tests/tiny.yaml", new, old)
    assert refused.returncode != 0
    said = refused.stdout + refused.stderr
    assert words in said
    assert "Traceback" not in said
    assert "Job stats" not in said


def test_published_tables_are_audited_without_a_study(clone):
    audited = clone.snakemake("--cores", "1", "--", "audit_published")
    assert audited.returncode == 0, audited.stderr
    assert "Exception" not in audited.stdout + audited.stderr
    assert (clone.folder / "results/published/audit.html").stat().st_size > 0
