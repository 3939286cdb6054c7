"""Kinds of work on the roofline, by hand; and both timelines of a device beside each other."""

import pandas as pd
import pytest

from tests import example_probes
from workflow_scripts import draw_operator_roofline
from workflow_scripts.lib import probe_sentences
from workflow_scripts.lib.counts import count_parameters
from workflow_scripts.lib.operator_roofline import kinds
from workflow_scripts.lib.probe_tables import clock_rows, operator_rows
from workflow_scripts.lib.specs import ModelShape, from_json

CEILINGS = pd.DataFrame([
    {"device": "gpu", "quantity": "matrix_product", "precision": "fp32", "value": 1e13},
    {"device": "gpu", "quantity": "copy", "precision": None, "value": 1e12},
])  # fmt: skip
NAMES = ("category", "self_time_s", "share", "flops", "moved_bytes")
ROWS = pd.DataFrame([
    dict(zip(NAMES, row, strict=True))
    for row in [
        ("matrix product", 0.004, 0.4, 2e10, 1e9),
        ("matrix product", 0.001, 0.1, None, None),
        ("elementwise", 0.001, 0.1, 1e8, 1e9),
        ("elementwise", 0.001, 0.1, None, 0.5e9),
        ("loss", 0.001, 0.1, 1e6, 1e6),
        ("loss", 0.002, 0.1, None, None),
        ("idle or untraced", 0.001, 0.1, None, None),
    ]
]).assign(device="gpu", probe="operators", precision="fp32", mode="step", status="ok", calls_per_step=1.0)  # fmt: skip


def test_kinds_are_held_against_the_slower_of_both_roofs():
    found = kinds(ROWS, CEILINGS).set_index("category")
    assert found.index[0] == "matrix product"
    product, elementwise = found.loc["matrix product"], found.loc["elementwise"]
    assert product.flop_per_byte == pytest.approx(20)
    assert product.flop_per_s == pytest.approx(5e12)
    assert product.of_roof == pytest.approx(0.5)  # 2 ms by products, 1 ms by copies, of 4 ms
    assert elementwise.bytes_per_s == pytest.approx(0.75e12)
    assert elementwise.of_roof == pytest.approx(0.75)
    assert elementwise.flop_per_byte == pytest.approx(0.1)
    assert found.loc["loss", ["flop_per_byte", "of_roof"]].isna().all()  # of two thirds of its time nothing is known
    assert pd.isna(found.loc["idle or untraced", "of_roof"])
    assert found.share.sum() == pytest.approx(1.0)
    assert kinds(ROWS, CEILINGS.head(0)).of_roof.isna().all()


def test_the_figure_draws_what_is_known(tmp_path):
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    CEILINGS.to_csv(tmp_path / "ceilings.csv", index=False)
    paths = {"ceilings": tmp_path / "ceilings.csv", "figure": tmp_path / "a.svg", "data": tmp_path / "a.csv"}
    draw_operator_roofline.main(operator_probes=tmp_path / "rows.csv", **paths, spec={})
    assert pd.read_csv(paths["data"]).category.to_list() == ["matrix product", "elementwise"]
    ROWS.head(0).to_csv(tmp_path / "rows.csv", index=False)
    draw_operator_roofline.main(operator_probes=tmp_path / "rows.csv", **paths, spec={})
    assert "data-nothing" in paths["figure"].read_text()


def test_the_update_moves_seven_numbers_for_each_parameter():
    record = example_probes.operators()
    row = {"mode": "step", "status": "ok", "operator": "aten::_fused_adamw_", "category": "optimizer", "share": 0.0,
           "phase": "optimizer", "calls_per_step": 2.0, "self_time_s": 0.001, "flops": None}  # fmt: skip
    record["result"]["rows"].append(row)
    update = operator_rows(record, "record")[0][-1]
    parameters = count_parameters(from_json(ModelShape, example_probes.MODEL)).total
    assert update["moved_bytes"] == 28 * parameters


@pytest.mark.parametrize(
    ("seen", "said"), [((0.02, "nsys, 9 kernels and copies"), "to within 2.6"), ((None, "nsys not found"), "not found")]
)
def test_nsight_stands_beside_the_profiler(seen, said):
    record = example_probes.clocks()
    record["result"]["rows"] = record["result"]["rows"][-1:]
    record["result"]["rows"][0] |= {"device_s": 0.0195, "nsys_s": seen[0], "nsys": seen[1]}
    text = " ".join(probe_sentences.clocks(pd.DataFrame(clock_rows(record, "record"))))
    assert said in text
