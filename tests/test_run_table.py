"""Training time in the table of runs: what compiling took, or did not because another run had compiled, is no part."""

import dataclasses
import io

import pandas as pd
import pytest

from tests.example_recording import ENVIRONMENT, RUN, history, outcome
from workflow_scripts.lib.records import write_record
from workflow_scripts.lib.specs import to_json
from workflow_scripts.lib.tables import run_row

CORPUS = {"splits": {"validation": {"start": 0, "stop": 10, "n_bytes": 10}}}


@pytest.mark.parametrize(("cold", "train_s"), [({1: 20.0}, 20.4), ({1: 3.0}, 3.4), ({1: 20.0, 11: 5.0}, 25.4)])
def test_training_time_does_not_depend_on_who_compiled(tmp_path, cold, train_s):
    metrics = pd.read_csv(io.StringIO(history()))
    for step, seconds in cold.items():
        metrics.loc[metrics.step == step, "step_time_s"] = seconds
    asked, record = to_json(dataclasses.replace(RUN, id="r")), tmp_path / "run.json"
    result = {"train_s": train_s, "resumed_at_steps": [step - 1 for step in cold if step > 1], "final_val_loss": 2.5}
    spec = {"study": "s", "code": "c", "environment": ENVIRONMENT, "run": asked}
    write_record(record, kind="run", id="r", asked=asked, spec=spec, outcome=outcome(**result))
    row = run_row(record, metrics, CORPUS)
    assert row["train_s"] == pytest.approx(0.4)
