import json
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from tests.fake_nvml import GIB, FakeNvml, h100
from tests.isolated_runs import eventually
from workflow_scripts.lib.machine_state import Watch, between, energy_j, snapshot
from workflow_scripts.lib.outcome import Outcome
from workflow_scripts.lib.specs import DeviceSpec

CPU = DeviceSpec(id="cpu", type="cpu", threads=1)
GPU = DeviceSpec(id="cuda0", type="cuda", threads=1, index=0)


class Laptop:
    """psutil of a machine that tells everything; or, with `silent`, nothing."""

    def __init__(self, silent=False, busy=100.0):
        self.silent = silent
        self.busy = busy

    def __getattribute__(self, name):
        if not name.startswith("_") and name not in {"silent", "busy"} and self.silent:
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def cpu_freq(self):
        return SimpleNamespace(current=2400.0, max=4800.0)

    def sensors_temperatures(self):
        reading = SimpleNamespace
        return {"coretemp": [reading(current=70.0), reading(current=81.0)], "nvme": [reading(current=99.0)]}

    def sensors_battery(self):
        return SimpleNamespace(power_plugged=False, percent=42)

    def getloadavg(self):
        return (1.5, 1.0, 0.5)

    def virtual_memory(self):
        return SimpleNamespace(available=3 * GIB)

    def swap_memory(self):
        return SimpleNamespace(used=GIB)

    def cpu_times(self, percpu=False):
        usable = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
        return (
            [self._core(self.busy if core == usable else 0.0) for core in range(usable + 1)] if percpu else self._core()
        )

    def _core(self, busy=100.0):
        if not busy:
            return SimpleNamespace(user=0.0)
        return SimpleNamespace(user=busy, nice=1.0, system=2.0, irq=0.5, softirq=0.5, steal=7.0, idle=9999.0)


@pytest.fixture(autouse=True)
def _all_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_the_host_is_read(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    state = snapshot(CPU, system=Laptop())
    host = state["host"]
    assert host["cpu_frequency_hz"] == 2.4e9
    assert host["cpu_frequency_max_hz"] == 4.8e9
    assert host["temperature_c"] == 81.0
    assert host["on_mains"] is False
    assert host["battery_share"] == 0.42
    assert host["load_1min"] == 1.5
    assert host["busy_cpu_s"] == 104.0
    assert host["steal_cpu_s"] == 7.0
    assert state["gpu"] is None
    json.dumps(state, allow_nan=False)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores cannot be reserved here")
def test_what_runs_on_other_cores_disturbs_nobody(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1})
    cores = [SimpleNamespace(user=user, system=0.0, steal=user / 12) for user in (50.0, 3.0, 70.0)]
    laptop = SimpleNamespace(cpu_times=lambda percpu: cores, getloadavg=lambda: (4.0, 4.0, 4.0))
    host = snapshot(CPU, system=laptop)["host"]
    assert (host["busy_cpu_s"], host["steal_cpu_s"]) == (3.0, 0.25)
    assert host["load_1min"] is None  # told for all cores only


def test_what_a_process_starts_is_its_own_load(tmp_path):
    """As a compiler's workers, which outlive the measurement and are waited for by nobody before its end."""
    before, done = snapshot(CPU), tmp_path / "done"
    burn = (
        "import pathlib, sys, time\nwhile time.process_time() < 0.4: pass\n"
        "pathlib.Path(sys.argv[1]).touch()\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", burn, str(done)]) as child:
        eventually(done.exists, 60)
        after = snapshot(CPU)
        child.kill()
    assert after["host"]["own_cpu_s"] - before["host"]["own_cpu_s"] > 0.38


def test_what_cannot_be_read_is_missing_and_named():
    state = snapshot(CPU, system=Laptop(silent=True))
    silent = {name for name, value in state["host"].items() if value is None}
    assert {"cpu_frequency_hz", "temperature_c", "on_mains", "busy_cpu_s", "steal_cpu_s"} <= silent
    assert set(state["not_readable"]) == {f"host.{name}" for name in silent}
    assert 0 not in [value for value in state["host"].values() if not isinstance(value, float)]


def test_this_machine_can_be_read():
    state = snapshot(CPU)
    assert state["host"]["memory_available_bytes"] > 0
    json.dumps(state, allow_nan=False)


def test_the_gpu_is_read():
    gpu = h100(used=3 * GIB, throttle=0x1 | 0x4 | 0x40, processes=[(os.getpid(), GIB), (1, GIB)], energy_mj=5000)
    state = snapshot(GPU, nvml=FakeNvml(gpu), system=Laptop())
    assert state["gpu"] == {
        "uuid": "GPU-0aaa-bbbb",
        "sm_clock_hz": 1500e6,
        "sm_clock_max_hz": 1980e6,
        "memory_clock_hz": 2600e6,
        "temperature_c": 61,
        "power_w": 350.5,
        "power_limit_w": 700.0,
        "throttle_reasons": ["power cap", "thermal, hardware"],
        "performance_state": 0,
        "utilisation_share": 0.25,
        "memory_used_bytes": 3 * GIB,
        "other_processes": 1,
        "other_memory_bytes": GIB,
        "energy_j": 5.0,
    }


def test_an_unknown_share_of_others_is_missing_not_zero():
    gpu = snapshot(GPU, nvml=FakeNvml(h100(processes=[(1, None), (2, GIB)])))["gpu"]
    assert (gpu["other_processes"], gpu["other_memory_bytes"]) == (2, None)
    assert snapshot(GPU, nvml=FakeNvml(h100()))["gpu"]["other_memory_bytes"] == 0
    assert snapshot(GPU, nvml=FakeNvml(h100()))["gpu"]["throttle_reasons"] == []


def test_a_gpu_that_cannot_be_read_is_all_missing():
    state = snapshot(GPU, nvml=FakeNvml())
    assert set(state["gpu"].values()) == {None}
    assert "gpu.power_w" in state["not_readable"]
    unsupported = ["nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage"]
    state = snapshot(GPU, nvml=FakeNvml(h100(), unsupported=unsupported), system=Laptop())
    assert [name for name in state["not_readable"] if name.startswith("gpu")] == ["gpu.power_w", "gpu.energy_j"]


def test_energy_is_in_joules_or_missing():
    assert energy_j(GPU, nvml=FakeNvml(h100(energy_mj=1234))) == pytest.approx(1.234)
    assert energy_j(GPU, nvml=FakeNvml(h100(), unsupported=["nvmlDeviceGetTotalEnergyConsumption"])) is None
    assert energy_j(GPU, nvml=FakeNvml()) is None
    assert energy_j(DeviceSpec(id="mps", type="mps", threads=1)) is None


def test_a_processors_energy_is_the_sum_of_its_packages(tmp_path):
    assert energy_j(CPU, packages=tmp_path) is None
    for zone, microjoules in {
        "intel-rapl:0": 2_500_000,
        "intel-rapl:1": 1_000_000,
        "intel-rapl:0:0": 9_000_000,
    }.items():
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "energy_uj").write_text(f"{microjoules}\n")
    assert energy_j(CPU, packages=tmp_path) == pytest.approx(3.5)
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("secret")
    assert energy_j(CPU, packages=tmp_path) is None


def test_rates_between_two_snapshots():
    before = {"monotonic_s": 10.0, "host": {"busy_cpu_s": 100.0, "own_cpu_s": 5.0, "steal_cpu_s": 0.0}}
    after = {"monotonic_s": 20.0, "host": {"busy_cpu_s": 135.0, "own_cpu_s": 25.0, "steal_cpu_s": 1.0}}
    assert between(before, after) == {"elapsed_s": 10.0, "others_cores": 1.5, "stolen_cores": 0.1}
    after["host"]["own_cpu_s"] = None
    assert between(before, after)["others_cores"] is None


def outcome_of(machine):
    return Outcome(
        status="ok",
        reason="",
        result={"samples_s": [1.0], "machine": machine},
        peak_process_bytes=None,
        wall_s=1.0,
        started_at="",
        ended_at="",
    )


def test_the_job_looks_on_while_a_core_is_idle_and_keeps_what_falls_into_the_measurement():
    moments = iter(range(10_000))
    seen = threading.Event()

    def look(device):
        moment = next(moments)
        if moment == 200:
            seen.set()
        return {"monotonic_s": float(moment), "host": {"cpu_frequency_hz": 3e9, "on_mains": True}, "gpu": None}

    with Watch(CPU, every_s=1e-6, look=look, n_cores=2) as watch:
        assert seen.wait(20)
    assert 0 < len(watch.seen) < Watch.MOST
    told = watch.put_into(outcome_of({"before": {"monotonic_s": 10.0}, "after": {"monotonic_s": 150.0}}))
    during = told.result["machine"]["during"]
    assert during
    assert all(10.0 <= one["monotonic_s"] <= 150.0 and one["clock_hz"] == 3e9 for one in during)
    assert told.result["samples_s"] == [1.0]


def test_the_job_does_not_look_where_every_core_measures():
    with Watch(CPU, every_s=0.0, n_cores=1) as watch:
        pass
    assert not watch.seen
    told = watch.put_into(outcome_of({"before": {"monotonic_s": 10.0}}))
    assert told.result["machine"]["during"] is None  # nobody looked, which is not the same as nothing to see
    assert watch.put_into(outcome_of(None)).result["machine"] is None
