"""What to train where: the largest model that ends in time, at a batch that is enough, in a way proved faster."""

import dataclasses
import json

import pandas as pd
import pytest

from tests import example_tables, tiny_run
from tests.test_report import Text, render
from workflow_scripts import check_recommendation, collect_recommendation, draw_recommendation, recommend_training
from workflow_scripts.lib import csv_tables, recommendation_section
from workflow_scripts.lib.counts import count_parameters, flops_per_token
from workflow_scripts.lib.forecast import Forecast
from workflow_scripts.lib.recommendation import BATCHES, MIN_STEPS, Plan, Task, recommend
from workflow_scripts.lib.selection import USUAL_PROPORTIONS
from workflow_scripts.lib.specs import CellSpec, from_json, to_json
from workflow_scripts.lib.ways import Way

OWN = Way(precision="fp32", execution="eager")
TASK = Task(
    device="cpu", base={"architecture": "gpt2", "bias": True}, vocab_size=80, sequence_length=128,
    step=tiny_run.STEP, optimizer=tiny_run.ADAMW, train_s=300.0, tokens_per_parameter=20.0, limit_bytes=2**33,
)  # fmt: skip


class Device:
    """A step costs a constant, and a rate for its FLOPs; each sequence takes some memory."""

    def __init__(self, constant_s=0.004, flop_per_s=5e10, known=("fp32",), bytes_per_sequence=2**20):
        self.constant_s, self.flop_per_s, self.known = constant_s, flop_per_s, known
        self.bytes_per_sequence = bytes_per_sequence

    def knows(self, device, step):
        return step.precision in self.known

    def forecast(self, device, shape, step, optimizer):
        peak_bytes = 16 * count_parameters(shape).total + step.batch_size * self.bytes_per_sequence
        if not self.knows(device, step):
            return Forecast(step_time_s=None, peak_bytes=peak_bytes)
        flops = step.batch_size * shape.sequence_length * flops_per_token(shape, shape.sequence_length).training
        time_s = self.constant_s + flops / self.flop_per_s
        return Forecast(
            step_time_s=time_s, low_s=0.9 * time_s, high_s=1.1 * time_s, bound="compute", peak_bytes=peak_bytes
        )


def test_the_largest_model_sees_its_tokens_in_time_and_a_deeper_one_would_not():
    plan = recommend(TASK, OWN, Device())
    shape = plan.shape
    assert plan.train_s <= 300
    assert plan.n_tokens == 20 * count_parameters(shape).total
    assert plan.train_s == pytest.approx(plan.n_tokens / (plan.step.batch_size * 128) * plan.batch.step_time_s)
    assert USUAL_PROPORTIONS[0] <= shape.n_embd / shape.n_layer <= USUAL_PROPORTIONS[1]
    assert shape.n_embd / shape.n_head in (32, 64)
    smaller = recommend(dataclasses.replace(TASK, train_s=100.0), OWN, Device())
    assert count_parameters(smaller.shape).total < count_parameters(shape).total


def test_the_batch_is_the_smallest_that_is_nearly_the_best():
    plan = recommend(TASK, OWN, Device(constant_s=0.05))
    by_batch = {batch.batch_size: batch for batch in plan.batches}
    assert tuple(by_batch) == BATCHES
    allowed = {size: b.throughput_tokens_per_s for size, b in by_batch.items() if b.fits and b.leaves_steps}
    best = max(allowed.values())
    assert allowed[plan.step.batch_size] >= 0.95 * best
    assert all(allowed[size] < 0.95 * best for size in allowed if size < plan.step.batch_size)
    assert plan.n_tokens / (plan.step.batch_size * 128) >= MIN_STEPS
    assert recommend(TASK, OWN, Device(constant_s=0.0)).step.batch_size == 1


def test_what_does_not_fit_is_not_advised():
    tight = dataclasses.replace(TASK, limit_bytes=2**26)
    plan = recommend(tight, OWN, Device(constant_s=0.05, flop_per_s=1e12))
    assert plan.batch.peak_bytes <= 2**26
    assert not all(batch.fits for batch in plan.batches)


def test_where_nothing_can_be_advised_the_reason_is_said():
    assert "no cost model of fp32 eager" in recommend(TASK, OWN, Device(known=()))
    assert "even 1 layer, 64 wide" in recommend(dataclasses.replace(TASK, train_s=0.1), OWN, Device())


def test_a_faster_way_without_a_model_of_its_own_takes_its_measured_gain():
    way = Way(precision="bf16", execution="eager", ratio=1.5, n_pairs=3)
    shape = recommend(TASK, OWN, Device()).shape
    task = dataclasses.replace(TASK, train_s=1e4)
    scaled, own = (
        recommend(task, way, Device()),
        recommend(task, way, Device(known=("fp32", "bf16"), flop_per_s=7.5e10)),
    )
    assert (scaled.step.precision, own.step.precision) == ("bf16", "bf16")
    assert count_parameters(scaled.shape).total > count_parameters(shape).total
    time_s = Device().forecast(
        "cpu", scaled.shape, dataclasses.replace(TASK.step, batch_size=scaled.step.batch_size), None
    )
    assert scaled.batch.step_time_s == pytest.approx(time_s.step_time_s / 1.5)


def advised(tmp_path, *, sample_s=0.05, status="ok", of_another=False, way=OWN):
    """A study of two devices: one plan that was checked (or a step of another batch), one without a plan."""
    plan = recommend(TASK, OWN, Device())
    assert isinstance(plan, Plan)
    values = {"reason": None, "way": dataclasses.asdict(way), "plan": to_json(plan), "cell": {}}
    told = {"train_minutes": 5, "tokens_per_parameter": 20,
            "devices": {"cpu": values, "gpu": {"reason": "no cost model <of> fp32"}}}  # fmt: skip
    (tmp_path / "recommendation.json").write_text(json.dumps(told))
    record = tmp_path / "devices" / "cpu" / "recommended.json"
    record.parent.mkdir(parents=True)
    result = {"samples_s": [sample_s] * 10, "memory": {"peak_allocated_bytes": None}} if status == "ok" else None
    step = values["plan"]["step"] | ({"batch_size": 3} if of_another else {})
    spec = {"model": values["plan"]["shape"], "step": step}
    told_why = None if status == "ok" else "too large"
    record.write_text(json.dumps({"status": status, "reason": told_why, "result": result, "spec": spec}))
    paths = example_tables.write_study(tmp_path, n_devices=2)
    tables = {name: tmp_path / f"{name}.csv" for name in ("recommendation", "batches", "sweep")}
    collect_recommendation.main(
        recommendation=tmp_path / "recommendation.json", checks=[record], recordings=[],
        cells=paths["cells"], devices=paths["devices"],
        recommendation_table=tables["recommendation"], batches_table=tables["batches"], sweep_table=tables["sweep"],
        spec={},
    )  # fmt: skip
    return plan, tables


def spec_of(devices):
    return {
        "recommendation": {"train_minutes": 5, "tokens_per_parameter": 20}, "model": TASK.base, "vocab_size": 80,
        "sequence_length": 128, "steps": {"cpu": to_json(TASK.step)}, "devices": devices,
        "recorded_steps": {"cuda": to_json(dataclasses.replace(TASK.step, execution="graphed"))},
        "optimizer": to_json(TASK.optimizer), "measure": to_json(tiny_run.CELL.measure), "limits_bytes": {"cpu": None},
    }  # fmt: skip


def test_a_local_device_gets_a_cell_to_check_and_a_recorded_one_its_own_execution(tmp_path, monkeypatch):
    asked = []

    class Known(Device):
        def forecast(self, device, shape, step, optimizer):
            asked.append((device, step.execution))
            return super().forecast(device, shape, step, optimizer)

    monkeypatch.setattr(recommend_training, "read_forecaster", lambda cost_model, devices: Known())
    paths = example_tables.write_study(tmp_path, n_devices=2)
    inputs = {name: paths[name] for name in ("cells", "processes", "cost_model", "devices")}
    spec = spec_of({"cpu": to_json(tiny_run.CPU)})
    recommend_training.main(**inputs, recommendation=tmp_path / "advice.json", spec=spec)
    told = json.loads((tmp_path / "advice.json").read_text())["devices"]
    cell = from_json(CellSpec, told["cpu"]["cell"])
    assert (cell.id, cell.mode, cell.device.id) == ("recommended", "step", "cpu")
    assert to_json(cell.model) == told["cpu"]["plan"]["shape"]
    assert cell.step.batch_size == told["cpu"]["plan"]["batch"]["batch_size"]
    assert told["gpu"]["cell"] is None
    assert {execution for device, execution in asked if device == "gpu"} == {"graphed"}


def test_where_nothing_is_recommended_nothing_is_measured(tmp_path):
    record, spec = tmp_path / "recommended.json", {"cell": None, "reason": "it is too slow"}
    nothing = dict.fromkeys(("tokens", "corpus", "device", "calibration"), tmp_path / "not there")
    check_recommendation.main(record=record, spec=spec, **nothing)
    assert json.loads(record.read_text()) == {
        "status": "unavailable",
        "reason": "nothing was recommended: it is too slow",
    }


def test_the_check_stands_beside_the_plan(tmp_path):
    plan, tables = advised(tmp_path)
    cpu, gpu = csv_tables.read(tables["recommendation"]).to_dict("records")
    assert cpu["step_time_s"] == pytest.approx(0.05)
    assert cpu["relative_error"] == pytest.approx(plan.batch.step_time_s / 0.05 - 1)
    assert cpu["n_params"] == count_parameters(plan.shape).total
    assert cpu["record"].endswith("devices/cpu/recommended.json")
    assert gpu["reason"] == "no cost model <of> fp32"
    sweep = csv_tables.read(tables["sweep"])
    assert list(sweep[sweep.chosen].batch_size) == [plan.step.batch_size]


def test_the_report_says_what_to_train_and_how_far_the_check_was_off(tmp_path):
    plan, tables = advised(tmp_path)
    plans, batches = (csv_tables.read(tables[name]) for name in ("recommendation", "batches"))
    names = {"cpu": "Chip", "gpu": "Example GPU"}
    told = recommendation_section.section(plans, batches, names, "example")
    on_cpu, on_gpu = told["sentences"]
    assert on_cpu.startswith("On Chip, train ")
    assert f"{plan.shape.n_embd} wide ({count_parameters(plan.shape).total:,} parameters)" in on_cpu
    assert "took 50.0\N{NO-BREAK SPACE}ms" in on_cpu
    assert on_gpu == "On Example GPU, nothing is recommended: no cost model <of> fp32."
    (claim,) = recommendation_section.claims(plans, names)
    assert claim.text == on_cpu
    assert claim.subjects >= {"cpu"}
    assert len(told["plans"].rows) == 2
    assert recommendation_section.section(pd.DataFrame(), pd.DataFrame(), {}, "example") is None


def test_the_report_says_what_an_advised_way_was_measured_to_be_faster_than(tmp_path):
    _, tables = advised(tmp_path, way=Way(precision="fp32", execution="compiled", ratio=1.5, n_pairs=2, over=OWN))
    (claim,) = recommendation_section.claims(csv_tables.read(tables["recommendation"]), {})
    assert " (measured 1.50× as fast as fp32, eager, over 2 pairs of cells)" in claim.text.replace(
        "\N{NO-BREAK SPACE}", " "
    )


def test_a_training_that_its_check_finds_too_long_is_said_to_be(tmp_path):
    _, tables = advised(tmp_path)
    plans = csv_tables.read(tables["recommendation"])
    plans = plans.assign(train_budget_s=300.0, n_params=1_000_000, n_tokens=20_000_000)
    over = "6.10 min, more than the 5.00 min allowed"
    for train_s, within, end in (
        (299.0, "parameters in 5.00 min", "training takes 4.98 min."),
        (366.0, f"parameters in {over}", f" {over}, in which it sees 16.4 tokens per parameter."),
    ):
        (claim,) = recommendation_section.claims(plans.assign(train_s=train_s), {})
        assert claim.within.replace("\N{NO-BREAK SPACE}", " ") == within
        assert claim.text.replace("\N{NO-BREAK SPACE}", " ").endswith(end)


def test_the_page_has_the_part_only_where_something_was_asked(tmp_path):
    _, tables = advised(tmp_path)
    paths = example_tables.write_study(tmp_path, n_devices=2)
    given = [tables["recommendation"], tables["batches"]]
    text = Text(render(tmp_path, paths, figures=(), recommendation=given)).text
    assert text.count("What to train where") == 2  # in the contents and as a heading
    assert "nothing is recommended: no cost model <of> fp32" in text
    assert "What to train where" not in Text(render(tmp_path, paths, figures=())).text


def test_a_check_of_another_model_is_none(tmp_path):
    _, tables = advised(tmp_path, of_another=True)
    plans, _ = (csv_tables.read(tables[name]) for name in ("recommendation", "batches"))
    (claim,) = recommendation_section.claims(plans, {})
    assert claim.text.endswith("No step of it was timed: the device is not here, and its recording has none of it.")
    assert not claim.records


def test_a_check_without_a_measurement_says_why(tmp_path):
    _, tables = advised(tmp_path, status="oom")
    plans, _ = (csv_tables.read(tables[name]) for name in ("recommendation", "batches"))
    (claim,) = recommendation_section.claims(plans, {})
    assert "no measurement: out of memory, too large" in claim.text


def test_the_figure_marks_the_batch_that_is_enough(tmp_path):
    plan, tables = advised(tmp_path)
    figure = tmp_path / "recommendation.svg"
    draw_recommendation.main(
        recommendation=[tables["recommendation"]],
        sweep=[tables["sweep"]],
        figure=figure,
        data=tmp_path / "drawn.csv",
        spec={},
    )
    assert f"{plan.step.batch_size} on cpu" in figure.read_text()
    draw_recommendation.main(recommendation=[], sweep=[], figure=figure, data=tmp_path / "drawn.csv", spec={})
    assert "nothing was recommended" in figure.read_text()
