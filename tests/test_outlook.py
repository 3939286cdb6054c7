"""The plan says of each cell and training what it will take, and says so where nothing is known."""

import dataclasses

from tests import tiny_run
from tests.tiny_run import ADAMW, RUN, SHAPE, STEP
from workflow_scripts.lib.cost_model import StepPrediction
from workflow_scripts.lib.forecast import Forecaster
from workflow_scripts.lib.gpu import Gpu
from workflow_scripts.lib.memory_model import estimate_memory
from workflow_scripts.lib.outlook import UNKNOWN, entries, lines
from workflow_scripts.lib.specs import MeasureSpec, to_json

STEP_S = 0.5
NOTHING_KNOWN = Forecaster(costs={}, types={"cpu": "cpu"})
CELL = dataclasses.replace(
    tiny_run.CELL,
    id="tiny-b4",
    measure=MeasureSpec(min_samples=9, target_interval=0.1, max_seconds=3.0, timeout_s=60.0),
)


class HalfSecond:
    """A cost model for which every step takes the same time."""

    def predict(self, shape, step, optimizer):
        return StepPrediction(step_time_s=STEP_S, low_s=STEP_S, high_s=STEP_S, bound="compute", parts_s={})


KNOWN = Forecaster(costs={"cpu": {"fp32-eager": HalfSecond()}}, types={"cpu": "cpu"})


def planned(*cells):
    listed = [{"cell": to_json(cell), "needed_bytes": 2**30} for cell in cells]
    return [*listed, {"run": to_json(RUN), "needed_bytes": 2**31}, {"device": "cpu", "id": "wide-s1"}]


def test_a_training_takes_its_steps_and_a_cell_its_fewest_samples_or_its_budget():
    long_budget = dataclasses.replace(CELL, measure=dataclasses.replace(CELL.measure, max_seconds=20.0))
    rows = entries(planned(CELL, long_budget), KNOWN)
    assert [row["time_s"] for row in rows] == [10 * STEP_S, 20.0, RUN.n_steps * STEP_S, None]
    assert lines(rows)[-2:] == [
        "cpu: 2 cells to time, 0:25 predicted",
        f"cpu: 2 trainings, 0:15 predicted, and 1 {UNKNOWN}",
    ]


def test_the_model_of_steps_says_nothing_of_a_part_of_one():
    (row, *_) = entries(planned(dataclasses.replace(CELL, mode="forward")), KNOWN)
    assert (row["time_s"], row["needed_bytes"]) == (None, 2**30)


def test_without_a_cost_model_memory_is_told_and_time_is_not():
    told = lines(entries(planned(CELL), NOTHING_KNOWN))
    assert "1 GiB" in told[0]
    assert UNKNOWN in told[0]
    assert told[2].count(UNKNOWN) == 3  # a model that is not selected yet has no memory either
    assert told[-2:] == [f"cpu: 1 cells to time, time {UNKNOWN}", f"cpu: 2 trainings, time {UNKNOWN}"]


def test_memory_is_forecast_for_the_gpu_that_the_device_is():
    rows = [
        {"device": "old", "type": "cuda", "name": "NVIDIA A100", "compute_capability": "8.0", "threads": 8},
        {"device": "new", "type": "cuda", "name": "NVIDIA H200", "compute_capability": "9.0", "threads": 8},
        {"device": "unread", "type": "cuda", "name": None, "compute_capability": None, "threads": 8},
    ]
    forecaster = Forecaster.of({}, rows)
    peaks = {row["device"]: forecaster.forecast(row["device"], SHAPE, STEP, ADAMW).peak_bytes for row in rows}
    for row in rows:
        assert peaks[row["device"]] == estimate_memory(SHAPE, STEP, ADAMW, "cuda", gpu=Gpu.of(row)).peak_bytes
    assert peaks["new"] > peaks["old"]


def test_memory_is_forecast_for_the_threads_that_a_processor_uses():
    longer = dataclasses.replace(SHAPE, sequence_length=1024)
    rows = [{"device": str(n), "type": "cpu", "name": "chip", "compute_capability": None, "threads": n} for n in (1, 9)]
    forecaster = Forecaster.of({}, rows)
    few, many = (forecaster.forecast(name, longer, STEP, ADAMW).peak_bytes for name in ("1", "9"))
    assert many == estimate_memory(longer, STEP, ADAMW, "cpu", threads=9).peak_bytes > few
