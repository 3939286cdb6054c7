"""The benchmark of cells timed directly: what it makes of pairs, and that the first form times the cell of a record."""

import json

import pytest

from benchmarks import direct
from tests.tiny_run import CELL, write_corpus
from workflow_scripts.lib.specs import to_json


def pairs(*times: tuple[float, float], others_cores: float | None = 0.0) -> list[dict]:
    about = {"n_samples": 10, "threads": 2, "others_cores": others_cores}
    return [{way: about | {"step_time_s": s} for way, s in zip(direct.WAYS, pair, strict=True)} for pair in times]


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ([(1.0, 1.01)], "they agree"),
        ([(1.0, 1.1), (1.1, 1.0), (1.0, 1.12)], "undecided: runs differ too much"),
        ([(1.0, 1.06), (1.02, 1.0), (1.0, 1.05), (1.0, 1.0)], "they agree"),
        ([(1.0, 1.1)], "undecided: too few pairs"),
        ([(1.0, 3.9), (1.0, 4.0), (1.0, 4.1)], "they differ"),  # a workflow that takes three of four threads away
    ],
)
def test_what_pairs_say(times, verdict, capsys):
    report = json.loads(json.dumps(direct.summarise(pairs(*times, others_cores=None), "cpu")))
    assert report["figures"]["verdict"] == verdict
    assert report["met"]["verdict"] == (verdict == direct.AGREE)
    assert None not in report["figures"].values()
    direct.print_report(report)
    assert verdict in capsys.readouterr().out


def test_a_record_names_all_that_is_needed_to_time_its_cell_again(tmp_path):
    record = tmp_path / "devices/cpu/cells/tiny.json"
    for folder in (tmp_path / "corpus", record.parent):
        folder.mkdir(parents=True)
    write_corpus(tmp_path / "corpus")
    record.write_text(json.dumps({"spec": to_json(CELL), "result": None}), encoding="utf-8")
    found = direct.time_directly(record)
    assert found["step_time_s"] > 0
    assert found["threads"] == 1
    assert direct.middle(json.loads(record.read_text(encoding="utf-8"))) is None
