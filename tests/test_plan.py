"""What is told of a study's time: all that measured counts, and nothing that an earlier run left."""

import json
import os

from workflow_scripts.lib import plan


def test_the_share_of_measuring_counts_every_kind_of_measuring_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "PLAN", tmp_path / "plan.json")
    plan.PLAN.write_text(json.dumps({"started_at_s": 1000.0, "cells": []}), encoding="utf-8")
    monkeypatch.setattr(plan.time, "time", lambda: 1100.0)

    def record(name, wall_s, written_s=1050.0, status="ok"):
        path = tmp_path / name
        path.write_text(json.dumps({"wall_s": wall_s, "status": status}), encoding="utf-8")
        os.utime(path, (written_s, written_s))
        return str(path)

    cells = [record("a", 10.0), record("b", 500.0, written_s=900.0), record("c", 2.0, status="oom")]
    unchecked = tmp_path / "recommended.json"
    unchecked.write_text(json.dumps({"status": "unavailable", "reason": "nothing was recommended"}), encoding="utf-8")
    os.utime(unchecked, (1050.0, 1050.0))
    others = [record("calibration", 20.0), record("probe", 8.0), str(unchecked)]
    said = plan.summarise(cells, [record("run", 40.0)], others)
    assert said == (
        "2 of 3 cells were timed (1 oom); 1 of 1 runs were trained to their end; measuring processes had 80% of 1:40"
    )


def test_a_run_begins_with_its_process(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "PLAN", tmp_path / "folder" / "plan.json")
    plan.write_plan(["cell"])
    started = json.loads(plan.PLAN.read_text(encoding="utf-8"))["started_at_s"]
    assert started == plan.psutil.Process().create_time()
