"""A recording is read as a further device, in every table, and adopted or refused by the work that it is of."""

import csv
import json
from pathlib import Path

import pytest
import yaml
from snakemake.utils import update_config

from tests.example_recording import STUDY, WORK, pack, read, refusal, selection, write_results
from workflow_scripts import (
    collect_ceilings,
    collect_devices,
    collect_memory,
    collect_operators,
    collect_runs,
    pack_recording,
)
from workflow_scripts.lib import recording_schema, recordings
from workflow_scripts.lib.adoption import adopt
from workflow_scripts.lib.candidates import Cost
from workflow_scripts.lib.config_checks import read_config
from workflow_scripts.lib.page import record_link
from workflow_scripts.lib.recordings import adopted, read_recording, read_recordings
from workflow_scripts.lib.sources import describe_source
from workflow_scripts.lib.study import Study
from workflow_scripts.lib.work import defined_work

ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path):
    """recordings/example/ with the example's recording."""
    return pack(tmp_path).parent


def test_packing_twice_gives_the_same_bytes_and_what_is_read_is_what_was_packed(tmp_path):
    one, other = pack(tmp_path / "a"), pack(tmp_path / "b")
    assert one.read_bytes() == other.read_bytes()
    device = read_recording(one, STUDY)
    assert device.members == write_results(tmp_path / "c")
    assert device.id == "box"
    assert device.manifest["torch"] == ["2.13.0+cu130"]
    assert list(device.manifest["code"]) == ["calibration", "cell", "device", "memory", "profile", "run"]


def test_the_script_packs_what_its_rule_gives(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = Path("results") / STUDY
    files = [root / name for name in write_results(root)]
    about = [path for path in files if "devices" not in path.parts]
    recording = tmp_path / "box.zip"
    records = [path for path in files if path not in about]
    manifest, spec = tmp_path / "recording.json", {"study": STUDY, "work": WORK}
    pack_recording.main(records=records, about=about, recording=recording, manifest=manifest, spec=spec)
    assert json.loads(manifest.read_text())["members"].keys() == read_recording(recording, STUDY).members.keys()
    assert len(read_recording(recording, STUDY).members) == len(files)


def test_recorded_rows_stand_after_local_ones_in_every_table(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "results" / STUDY
    write_results(root, "cpu")
    here, others = root / "devices" / "cpu", [Path("recordings") / STUDY / "box.zip"]
    chosen = [root / "selection.json"]
    (tmp_path / "corpus.json").write_text(
        json.dumps({"splits": {"validation": {"start": 0, "stop": 10, "n_bytes": 10}}}), encoding="utf-8"
    )
    collect_devices.main(
        devices=[here / "device.json"], calibrations=[here / "calibration.json"], recordings=others,
        devices_table=tmp_path / "devices.csv", spec={},
    )  # fmt: skip
    collect_ceilings.main(
        calibrations=[here / "calibration.json"], recordings=others, datasheets=ROOT / "resources/datasheets.csv",
        ceilings_table=tmp_path / "ceilings.csv", spec={},
    )  # fmt: skip
    collect_memory.main(
        memory=[here / "memory/tiny.json"], recordings=others, memory_table=tmp_path / "memory.csv", spec={}
    )
    collect_operators.main(
        operators=[here / "profiles/wide/operators.csv"], recordings=others, selection=chosen,
        operators_table=tmp_path / "operators.csv", spec={},
    )  # fmt: skip
    collect_runs.main(
        records=[here / "runs/wide-s1/run.json"], metrics=[here / "runs/wide-s1/metrics.csv"], recordings=others,
        selection=chosen, corpus=tmp_path / "corpus.json", runs=tmp_path / "runs.csv", curves=tmp_path / "curves.csv",
        spec={},
    )  # fmt: skip
    tables = {}
    for name in ("devices", "ceilings", "memory", "operators", "runs", "curves"):
        with (tmp_path / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            tables[name] = list(csv.DictReader(file))
        assert list(dict.fromkeys(row["device"] for row in tables[name])) == ["cpu", "box"]
    assert [row["origin"] for row in tables["devices"]] == ["local", "recorded"]
    assert [row["sync_check_ratio"] for row in tables["devices"]] == ["1.8", "1.8"]
    one, other = tables["runs"]
    assert {**one, "device": "", "record": ""} == {**other, "device": "", "record": ""}
    assert other["record"] == "recordings/example/box.zip/devices/box/runs/wide-s1/run.json"
    assert record_link(other["record"], STUDY) == "../../recordings/example/box.zip"


def test_a_recorded_role_with_another_model_is_left_out(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "selection.json").write_text(json.dumps(selection(n_layer=3)), encoding="utf-8")
    collect_operators.main(
        operators=[], recordings=[Path("recordings") / STUDY / "box.zip"], selection=[tmp_path / "selection.json"],
        operators_table=tmp_path / "operators.csv", spec={},
    )  # fmt: skip
    assert len((tmp_path / "operators.csv").read_text().splitlines()) == 1


def test_another_version_of_recording_is_refused(folder, monkeypatch):
    monkeypatch.setattr(recordings, "RECORDING_VERSION", 2)
    assert "it is a recording of version 1, and this Assay reads 2" in refusal(folder)


def test_a_version_of_records_that_is_not_read_is_refused(folder, monkeypatch):
    schema = {**recording_schema.MANIFEST["properties"], "record_version": {"enum": [7]}}
    monkeypatch.setitem(
        recording_schema.VALIDATORS,
        "manifest",
        recording_schema.jsonschema.Draft202012Validator({"properties": schema}),
    )
    assert "record_version" in refusal(folder)


def test_a_recording_of_another_study_is_refused(folder):
    assert "recorded in study 'example', and this is 'mine': move it to recordings/example/" in refusal(
        folder, study="mine"
    )


def test_a_file_is_named_as_its_device(folder):
    (folder / "box.zip").rename(folder / "h100.zip")
    assert "name the file box.zip" in refusal(folder)


def test_a_local_device_of_the_same_name_is_told(folder):
    message = refusal(folder, local={"cpu": "A CPU", "box": "Another Box"}, host="elsewhere")
    assert "a local device has this id" in message
    assert "devices: [{id: NAME" in message


def test_what_this_machine_packed_itself_is_passed_over(folder):
    assert read(folder, local={"box": "Example Box"}, host="elsewhere") == []


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("training.n_steps", "training.n_steps is 30 in the recording and 31 here"),
        ("corpus.text", "corpus.text is"),
        ("models.tiny", "models.tiny is"),
        ("selection.size", "selection.adopt: false selects anew"),
    ],
)
def test_other_work_is_refused_with_the_difference_named(folder, key, words):
    message = refusal(folder, work={**WORK, key: 31})
    assert words in message
    assert "study: NAME" in message
    assert "recordings: ignore" in message


def test_work_that_only_one_has_is_no_difference(folder):
    less = {key: value for key, value in WORK.items() if not key.startswith("selection.")}
    (device,) = read(folder, work={**less, "models.other": {}})
    assert device.id == "box"


def test_recordings_of_the_same_models_are_adopted_together(tmp_path):
    for device in ("box", "rig"):
        pack(tmp_path, device)
    found = read(tmp_path / "recordings" / STUDY)
    assert [path.rsplit("/", 1)[1] for path in adopted(found)] == ["box.zip", "rig.zip"]


def test_recordings_of_different_models_cannot_both_be_adopted(tmp_path):
    pack(tmp_path, "box")
    pack(tmp_path, "rig", n_layer=3)
    with pytest.raises(ValueError, match=r"box\.zip and .*rig\.zip were measured with different models as deep"):
        adopted(read(tmp_path / "recordings" / STUDY))


def test_an_adopted_model_over_a_local_budget_is_told_and_kept():
    wanted = {
        "n_embd": {"min": 32, "max": 32, "multiple_of": 32}, "n_layer": {"min": 1, "max": 2}, "n_head": 2,
        "architecture": "gpt2", "quantity": "non_embedding", "budgets": {"memory_gib": 1.0, "train_minutes": 1.0},
    }  # fmt: skip

    def predict(shape):
        cheap = Cost(step_time_s=0.1, train_s=10.0, peak_bytes=2**20)
        return {"cpu": Cost(step_time_s=0.1, train_s=120.0, peak_bytes=2**20), "box": cheap}

    chosen = adopt({"box": selection()}, wanted, 50, 16, predict, ["cpu"]).selection
    assert chosen["adopted_from"] == ["box"]
    assert chosen["roles"]["wide"]["shape"] == selection()["roles"]["wide"]["shape"]
    assert {(one["role"], one["device"], one["budget"], one["ratio"]) for one in chosen["over_budget"]} == {
        ("wide", "cpu", "time", 2.0),
        ("deep", "cpu", "time", 2.0),
    }
    assert "Over a budget: 2.0 minutes on cpu" in " ".join(chosen["reasons"])


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in ROOT.glob("recordings/*/*.zip")}), ids=lambda f: f.name
)
def test_the_recordings_that_come_with_the_code_are_of_the_work_of_their_study(folder):
    files = [ROOT / "config.yaml", ROOT / f"studies/{folder.name}.yaml"]
    config: dict = {}
    for file in (file for file in files if file.is_file()):
        update_config(config, yaml.safe_load(file.read_text(encoding="utf-8")))
    config = read_config(config, [], ROOT / "config.schema.yaml")
    source = describe_source(config["corpus"])
    study = Study(name=folder.name, config=config, devices={}, vocab_size=source.vocab_size, capturing=frozenset())
    found = read_recordings(folder, study=config["study"], work=defined_work(study, source.digest), local={})
    assert adopted(found) or not study.needs_selection
