"""Expected times beside measured ones: the arithmetic of the three ways, the report's part, the table of operators."""

import json

import pandas as pd
import pytest

from tests import example_tables
from workflow_scripts import collect_ceilings, collect_operator_costs
from workflow_scripts.lib import cost_fits
from workflow_scripts.lib.expectations import COLUMNS, expectations
from workflow_scripts.lib.prediction_section import section

ERRORS = {
    "n_fitted": 18, "leave_one_out_error": 0.047, "fresh_model_error": 0.062, "repeat_error": 0.011,
    "within_interval": 0.94, "uncorrected_error": 0.14, "error_from": {"3": 0.08, "8": None},
}  # fmt: skip
MODEL = {"devices": {"cpu": {"errors": {"fp32-eager": ERRORS}}}}


def test_each_way_says_what_its_formula_says():
    cells, ceilings = example_tables.cells(), example_tables.ceilings()
    rows = expectations(cells, ceilings)
    cell = cells[cells.precision == "fp32"].iloc[0]
    said = rows[rows.cell == cell.cell].set_index("way")
    assert said.expected_s["datasheet"] == pytest.approx(6 * cell.n_params * cell.tokens_per_step / 2e12)
    assert said.expected_s["ceiling"] == pytest.approx(cell.flops_per_token * cell.tokens_per_step / 1.1 / 1.11e12)
    assert said.relative_error["model"] == pytest.approx(cell.predicted_step_time_s / cell.step_time_s - 1)


def test_a_way_that_knows_nothing_of_a_cell_says_nothing():
    rows = expectations(example_tables.cells(), example_tables.ceilings().assign(datasheet=None))
    assert set(rows.way) == {"ceiling", "model"}
    assert set(rows[rows.precision == "bf16"].way) == {"model"}
    assert list(expectations(example_tables.cells().head(0), example_tables.ceilings()).columns) == COLUMNS


def test_the_report_tells_the_errors_of_all_ways_and_what_bounds_the_cells():
    cells = example_tables.cells()
    told = section(cells, example_tables.ceilings(), MODEL, {"cpu": "a CPU"}, "example")
    text = " ".join(told["sentences"])
    off = (cells.predicted_step_time_s / cells.step_time_s - 1).abs().mean()
    assert f"{off * 100:.1f}" in text
    assert "by the cost model" in text
    assert "Measured again in other processes, cells differ from themselves by 1.1\u00a0% (fp32-eager)." in text
    assert f"Of {len(cells)}\u00a0cells on a CPU, compute bounds {len(cells)}." in text
    row = [cell.text for cell in told["table"].rows[0]]
    assert row[-4:] == ["4.70", "6.20", "1.10", "94.0"]
    assert section(cells.head(0), example_tables.ceilings(), {}, {}, "example") is None


def test_what_a_cell_measured_again_differs_by_is_the_floor_of_every_prediction():
    once = [{"cell": name, "base": name, "process": 1, "status": "ok", "step_time_s": 0.1} for name in ("a", "b")]
    again = [
        {"cell": f"a-p{n}", "base": "a", "process": n, "status": status, "step_time_s": seconds}
        for n, status, seconds in ((2, "ok", 0.11), (3, "ok", 0.07), (4, "oom", None))
    ]
    assert cost_fits._repeat_error(once, [*once, *again]) == pytest.approx(0.2)
    assert cost_fits._repeat_error(once, once) is None


CALIBRATION = {
    "device": "cpu", "environment": {"name": "a CPU"},
    "ceilings": [{"quantity": "copy", "precision": None, "unit": "bytes/s", "value": 1e9}],
    "operators": [
        {"kind": "linear", "precision": "fp32", "direction": "forward", "dims": [4, 8, 16], "seconds": 1e-6,
         "host_s": None, "n": 3},
        {"kind": "linear", "precision": "fp32", "direction": "forward", "dims": [8, 8, 16], "seconds": 1e-6,
         "host_s": None, "n": 3},
        {"kind": "gelu", "precision": "bf16", "direction": "backward", "dims": [4, 8], "seconds": 1e-6, "host_s": 2e-6,
         "n": 3},
    ],
}  # fmt: skip


def test_operators_stand_in_a_table_with_their_work_and_the_best_beside_the_ceilings(tmp_path):
    calibration, costs, ceilings = (tmp_path / name for name in ("calibration.json", "costs.csv", "ceilings.csv"))
    calibration.write_text(json.dumps(CALIBRATION), encoding="utf-8")
    inputs = {"calibrations": [calibration], "recordings": [], "spec": {}}
    collect_operator_costs.main(**inputs, operator_costs=costs)
    table = pd.read_csv(costs).set_index(["kind", "dims"])
    assert list(table.index) == [("linear", "4×8×16"), ("linear", "8×8×16"), ("gelu", "4×8")]
    assert table.flop_per_s["linear", "4×8×16"] == pytest.approx(2 * 4 * 8 * 16 / 1e-6)
    assert table.bytes_per_s["gelu", "4×8"] == pytest.approx(2 * 3 * 32 / 1e-6)
    sheets = tmp_path / "sheets.csv"
    sheets.write_text("device,precision,flop_per_s,bytes_per_s,source\na CPU,fp32,1e12,,a sheet\n", encoding="utf-8")
    collect_ceilings.main(**inputs, datasheets=sheets, ceilings_table=ceilings)
    best = pd.read_csv(ceilings).set_index("quantity")
    assert best.best["linear_forward"] == pytest.approx(2 * 8 * 8 * 16 / 1e-6)
    assert best.datasheet["linear_forward"] == 1e12
    assert best.unit["gelu_backward"] == "bytes/s"
