"""The cross-check of timers: the same step, in turn, twice; and what the table says of agreement. And energy."""

import dataclasses
import json

import pytest

from tests.test_cell import CELL
from tests.tiny_run import write_corpus
from workflow_scripts.lib import timer_comparison
from workflow_scripts.lib.energy import count_energy
from workflow_scripts.lib.machine_columns import MACHINE_COLUMNS, energy_per_step_j, machine_columns
from workflow_scripts.lib.records import RECORD_VERSION
from workflow_scripts.lib.specs import to_json
from workflow_scripts.lib.step import TrainStep
from workflow_scripts.lib.timer_comparison import ADAPTIVE, ASSAY, BLOCKED, compare_timers
from workflow_scripts.lib.timer_table import timer_rows


def test_all_timers_time_the_very_same_step_forwards_and_backwards(tmp_path, monkeypatch):
    made = []
    original = TrainStep.run

    def counted(step):
        made.append(step)
        original(step)

    monkeypatch.setattr(TrainStep, "run", counted)
    cell = dataclasses.replace(CELL, measure=dataclasses.replace(CELL.measure, max_seconds=0.1))
    sent = []
    paths = {name: str(path) for name, path in write_corpus(tmp_path).items()}
    result = compare_timers({"cell": to_json(cell), **paths}, sent.append)
    assert result["order"] == [ASSAY, BLOCKED, ADAPTIVE, ADAPTIVE, BLOCKED, ASSAY]
    assert [found["timer"] for found in result["rounds"]] == result["order"]
    for found in result["rounds"]:
        assert len(found["samples_s"]) >= 1
        assert 0 < sum(found["samples_s"]) * found["steps_per_sample"] <= 1.01 * found["elapsed_s"] + 0.01
    assert len(set(map(id, made))) == 1
    assert result["observed"]["threads"] == 1
    assert len(sent[2]["partial"]["rounds"]) >= 3
    json.dumps(result, allow_nan=False)


def test_torchs_timer_is_given_the_devices_threads(monkeypatch):
    asked = []

    class Timer:
        def __init__(self, statement, *, globals, num_threads):
            asked.append(num_threads)

        def blocked_autorange(self, *, min_run_time):
            return type("Measurement", (), {"times": [1.0], "number_per_run": 1, "has_warnings": False})()

    monkeypatch.setattr(timer_comparison, "Timer", Timer)
    cell = dataclasses.replace(CELL, device=dataclasses.replace(CELL.device, threads=3))
    step = type("Step", (), {"run": None, "synchronise": None, "device": None})()
    assert timer_comparison.timers_of(step, cell)[BLOCKED]()["samples_s"] == [1.0]
    assert asked == [3]


def record(tmp_path, rounds, status="ok"):
    path = tmp_path / "cell.json"
    rounds = [{"timer": timer, "samples_s": samples, "warned": False} for timer, samples in rounds]
    path.write_text(
        json.dumps(
            {
                "record_version": RECORD_VERSION,
                "id": "tiny",
                "device": {"id": "cpu"},
                "status": status,
                "reason": "",
                "result": {"rounds": rounds} if rounds else None,
            }
        )
    )
    return path


def around(middle, n=9, width=0.01):
    return [middle * (1 + width * (i - n // 2) / n) for i in range(n)]


def test_timers_agree_where_their_ranges_over_both_rounds_overlap(tmp_path):
    rounds = [(ASSAY, around(1.0)), (BLOCKED, around(1.001)), (ADAPTIVE, around(1.2)), (ADAPTIVE, around(1.1))]
    rows = timer_rows(record(tmp_path, [*rounds, (BLOCKED, around(1.04)), (ASSAY, around(1.02))]))
    assert [row["timer"] for row in rows] == [ASSAY, BLOCKED, ADAPTIVE]
    assert [row["agree"] for row in rows] == [True, True, False]
    assert [row["n"] for row in rows] == [18, 18, 18]
    assert rows[0]["ratio_to_assay"] == 1.0
    assert rows[2]["ratio_to_assay"] == pytest.approx(1.15 / 1.01, rel=0.02)
    assert rows[1]["between_rounds"] == pytest.approx(1.04 / 1.001 - 1)
    assert rows[1]["low_s"] <= 1.001 <= 1.04 <= rows[1]["high_s"]


def test_too_few_samples_do_not_agree_or_disagree(tmp_path):
    rows = timer_rows(record(tmp_path, [(ASSAY, around(1.0)), (BLOCKED, [1.0])]))
    assert (rows[1]["agree"], rows[1]["low_s"], rows[1]["iqr_s"], rows[1]["n"]) == (None, None, None, 1)
    assert rows[0]["between_rounds"] is None


def test_a_cross_check_that_failed_is_one_row_with_its_reason(tmp_path):
    (row,) = timer_rows(record(tmp_path, [], status="oom"))
    assert (row["cell"], row["status"], row.get("median_s")) == ("tiny", "oom", None)


class Meter:
    """A device that uses 5 J a step of 2 ms, and a counter that moves every `tick_s`; it rests while that is read."""

    def __init__(self, tick_s=0.1, counts=True, look_s=0.0):
        self.time, self.joules, self.tick_s, self.counts, self.look_s = 100.0, 7.0, tick_s, counts, look_s
        self.shown, self.shown_at, self.n_synchronised = 7.0, 100.0, 0

    def run(self):
        self.spend(0.002, 5.0)

    def spend(self, seconds, joules):
        self.time += seconds
        self.joules += joules
        if self.time - self.shown_at >= self.tick_s:
            self.shown, self.shown_at = self.joules, self.time

    def synchronise(self):
        self.n_synchronised += 1

    def read(self):
        self.spend(self.look_s, 2000.0 * self.look_s)  # 2 kW, where a step takes 2.5
        return self.shown if self.counts else None

    def count(self, **options):
        return count_energy(self.run, self.synchronise, self.read, now=lambda: self.time, **options)


def test_energy_is_counted_from_tick_to_tick():
    meter = Meter()
    found = meter.count()
    assert found["elapsed_s"] >= 1.0
    assert found["energy_j"] / found["n_steps"] == pytest.approx(5.0, rel=0.02)
    assert meter.n_synchronised > 10
    assert energy_per_step_j({"energy": found}, [0.002]) == pytest.approx(5.0, rel=0.02)


def test_looks_at_a_slow_counter_do_not_count_as_steps():
    found = Meter(look_s=0.005).count()
    assert found["energy_j"] / found["n_steps"] == pytest.approx(5.0, rel=0.05)
    assert found["elapsed_s"] / found["n_steps"] == pytest.approx(0.002, rel=0.06)


def test_energy_counted_at_another_pace_than_the_steps_is_missing():
    found = {"energy_j": 138.8, "n_steps": 102, "elapsed_s": 1.1}  # of a step of 6.2 ms, with a look after each
    assert energy_per_step_j({"energy": found}, [0.0062]) is None
    assert energy_per_step_j({"energy": found}, [0.0105]) == pytest.approx(138.8 / 102)
    assert energy_per_step_j({"energy": found}, []) is None


def test_energy_that_nobody_counts_is_missing_and_costs_no_step():
    meter = Meter(counts=False)
    assert meter.count() is None
    assert meter.time == 100.0
    assert Meter(tick_s=1e9).count() is None  # a counter that stands still
    assert energy_per_step_j({"energy": None}, [0.002]) is None
    assert energy_per_step_j({}, [0.002]) is None


def test_the_machines_state_becomes_columns_and_what_is_unknown_stays_empty():
    assert machine_columns({}) == dict.fromkeys(MACHINE_COLUMNS)
    host = {"cpu_frequency_hz": 2e9, "temperature_c": 70.0, "on_mains": True, "cpu_throttle_count": 4}
    machine = {
        "before": {"host": host, "gpu": None},
        "after": {"host": {**host, "on_mains": False, "cpu_throttle_count": 6}, "gpu": None},
        "between": {"others_cores": 0.25},
        "during": [{"clock_hz": 3e9, "temperature_c": 90.0, "throttle_reasons": None, "on_mains": None}] * 2,
    }
    assert machine_columns({"machine": machine}) == {
        "others_cores": 0.25,
        "on_battery": True,
        "clock_mhz": 3000.0,
        "temperature_c": 90.0,
        "throttle": "thermal, 2 times",
        "card": None,
    }


def test_a_gpu_tells_why_it_was_throttled():
    gpu = {"uuid": "GPU-7", "sm_clock_hz": 1.5e9, "temperature_c": 60, "throttle_reasons": ["power cap"]}
    state = {"host": {"on_mains": None}, "gpu": gpu}
    looks = [{"clock_hz": 1.9e9, "temperature_c": 64, "throttle_reasons": [], "on_mains": None}] * 2
    found = machine_columns({"machine": {"before": state, "after": state, "between": {}, "during": looks}})
    assert (found["throttle"], found["clock_mhz"], found["on_battery"]) == ("power cap", 1900.0, None)
    assert found["card"] == "GPU-7"
    calm = {"host": {}, "gpu": {**gpu, "throttle_reasons": []}}
    assert machine_columns({"machine": {"before": calm, "after": calm}})["throttle"] == "none"
