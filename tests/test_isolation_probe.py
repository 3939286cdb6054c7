"""Cells in one process and each in its own: measured for real, and what a study may ask of it."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from tests.tiny_run import CELL, CPU, write_corpus
from workflow_scripts import run_probe
from workflow_scripts.lib import probe_specs
from workflow_scripts.lib.config_checks import read_config
from workflow_scripts.lib.outcome import Outcome
from workflow_scripts.lib.probe_plan import probes_of
from workflow_scripts.lib.probes import isolation
from workflow_scripts.lib.specs import StepSpec, to_json
from workflow_scripts.lib.study import Study

ROOT = Path(__file__).parents[1]
CELLS = [
    dataclasses.replace(CELL, id="first", mode="forward"),
    dataclasses.replace(CELL, id="never", step=StepSpec(batch_size=4, precision="tf32", execution="eager")),
    dataclasses.replace(CELL, id="second"),
]
PROBE = to_json(probe_specs.IsolationProbe(id="isolation", device=CPU, cells=tuple(CELLS), timeout_s=60.0))


def test_one_process_measures_the_cells_in_their_order_and_outlives_one_that_fails(tmp_path):
    paths = {key: str(path) for key, path in write_corpus(tmp_path).items()}
    sent = []
    rows = isolation.probe({"probe": PROBE, **paths}, sent.append)["rows"]
    assert [(row["cell"], row["place"], row["of"]) for row in rows] == [
        ("first", 1, 3),
        ("never", 2, 3),
        ("second", 3, 3),
    ]
    assert [row["status"] for row in rows] == ["ok", "unavailable", "ok"]
    assert all(len(row["samples_s"]) >= 5 for row in rows if row["status"] == "ok")
    assert rows[2]["peak_process_bytes"] >= rows[0]["peak_process_bytes"] > 2**20
    assert len(sent) == 3


def test_a_process_for_all_and_one_for_each():
    whole, *alone = probe_specs.parts(PROBE)
    assert [cell["id"] for cell in whole["cells"]] == ["first", "never", "second"]
    assert [[cell["id"] for cell in part["cells"]] for part in alone] == [["first"], ["never"], ["second"]]
    killed = Outcome(status="killed", reason="by the kernel", result=None, peak_process_bytes=None, wall_s=1.0,
                     started_at="a", ended_at="b")  # fmt: skip
    kept = dataclasses.replace(killed, status="ok", reason="", result={"rows": [{"cell": "first", "of": 1}]})
    joined = run_probe.together([killed, kept, kept, kept], probe_specs.parts(PROBE))
    assert joined.status == "ok"
    assert len(joined.result["rows"]) == 3


def test_a_study_names_cells_that_its_grid_has():
    def study(**entry):
        config = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
        config["probes"] = [{"name": "isolation", "kind": "isolation", **entry}] if entry else []
        read = read_config(config, [], ROOT / "config.schema.yaml")
        return Study(name="s", config=read, devices={"cpu": CPU}, vocab_size=90)

    first, second, *_ = study().cells("cpu")
    probe = probes_of(study(cells=[second, first]), "cpu")["isolation"]
    assert [cell.id for cell in probe.cells] == [second, first]
    assert probe_specs.probe_from_json(to_json(probe)) == probe
    with pytest.raises(ValueError, match=f"{second}x, which the grid of cpu has not: did you mean"):
        probes_of(study(cells=[first, f"{second}x"]), "cpu")
    with pytest.raises(ValueError, match=r"probes\[0\]\.cells is missing"):
        study(timeout_s=5)
