"""Equal GPUs, drivers too old, GPUs that vanish (one line, no record) and GPUs that others use (a finding)."""

import dataclasses
import os
import sys
from types import SimpleNamespace

import pandas as pd
import pytest

from tests.example_recording import outcome
from tests.fake_nvml import GIB, FakeNvml, h100
from workflow_scripts.lib import devices, isolation
from workflow_scripts.lib.audit.frames import with_labels
from workflow_scripts.lib.audit.own import _others_on_gpu
from workflow_scripts.lib.audit.registry import RULES
from workflow_scripts.lib.devices import detect_devices, left_out, resolve_devices
from workflow_scripts.lib.gpu_processes import held_bytes, others_on
from workflow_scripts.lib.lost_device import DeviceLost, present
from workflow_scripts.lib.specs import DeviceSpec

GPU = DeviceSpec(id="cuda1", type="cuda", index=1, threads=8)
ERROR = dataclasses.replace(outcome(), status="error", reason="AcceleratorError: CUDA error: launch failed")


def test_a_device_that_is_there_keeps_its_outcome():
    there = FakeNvml(h100(0), h100(1))
    assert present(GPU, ERROR, nvml=there) is ERROR
    assert present(GPU, outcome(), nvml=FakeNvml()).status == "ok"
    assert present(DeviceSpec(id="cpu", type="cpu", threads=1), ERROR, nvml=FakeNvml()) is ERROR


@pytest.mark.parametrize(
    ("nvml", "reason"),
    [
        (FakeNvml(h100(0)), ERROR.reason),
        (FakeNvml(h100(0), h100(1, lost=True)), ERROR.reason),
        (FakeNvml(h100(0), h100(1)), "AcceleratorError: CUDA error: unknown error"),
        (FakeNvml(h100(0), h100(1)), "RuntimeError: No CUDA-capable device is detected"),
    ],
)
@pytest.mark.parametrize("status", ["error", "killed", "timeout"])
def test_a_device_that_is_gone_ends_the_job_in_one_line(nvml, reason, status):
    with pytest.raises(DeviceLost) as lost:
        present(GPU, dataclasses.replace(ERROR, status=status, reason=reason), nvml=nvml)
    message = str(lost.value)
    assert message.startswith("device cuda1 (cuda:1) does not answer any more")
    assert "what was measured before is kept" in message
    assert "\n" not in message


def test_every_measuring_process_is_asked(monkeypatch):
    monkeypatch.setattr(isolation, "_run", lambda *_: ERROR)
    monkeypatch.setattr(isolation, "present", lambda device, outcome: (device, outcome))
    assert isolation.run_isolated("a:b", {}, device=GPU, timeout_s=1.0) == (GPU, ERROR)


def test_others_on_a_gpu_are_counted_with_what_they_hold():
    gpu = h100(processes=[(os.getpid(), 7 * GIB), (1, GIB), (2, GIB)])
    others = others_on(FakeNvml(gpu), gpu)
    assert [process.pid for process in others] == [1, 2]
    assert held_bytes(others) == 2 * GIB


def test_in_a_container_nobody_is_taken_for_another(monkeypatch):
    gpu = h100(processes=[(4711, GIB)])
    assert len(others_on(FakeNvml(gpu), gpu)) == 1
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True)))
    with pytest.raises(LookupError):
        others_on(FakeNvml(gpu), gpu)


def test_a_gpu_in_use_by_others_is_a_finding_of_its_record():
    def state(others, held):
        return {"gpu": {"other_processes": others, "other_memory_bytes": held}}

    record = {"result": {"machine": {"before": state(0, 0), "after": state(2, 3 * 10**9)}}}
    table = with_labels(pd.DataFrame([{"label": "cuda0/a", **_others_on_gpu(record)}]))
    (finding,) = RULES["shared_gpu"](table)
    assert (finding.severity, finding.subject) == ("warning", "cuda0/a")
    assert finding.message == "2 other processes were on the GPU and held 3 GB of it"
    assert _others_on_gpu({"result": {"machine": {"before": {"gpu": None}}}}) == {}


@pytest.fixture
def found(monkeypatch):
    """Detects GPUs as if torch were built with CUDA 13."""
    monkeypatch.setattr(devices, "torch_build", lambda: {"version": "2.13.0+cu130", "cuda": "13.0"})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return lambda *gpus, **options: detect_devices(FakeNvml(*gpus, **options))


def test_two_equal_gpus_are_devices_of_their_own(found):
    one, other = resolve_devices(["cuda:0", "cuda:1"], found(h100(0), h100(1)))
    assert (one.id, other.id) == ("cuda0", "cuda1")
    assert (one.torch_name, other.torch_name) == ("cuda:0", "cuda:1")


def test_a_driver_too_old_for_torch_is_told_before_any_job(found):
    old = found(h100(), cuda_driver=12040)
    with pytest.raises(ValueError) as refused:
        resolve_devices(["cuda"], old)
    assert str(refused.value) == (
        "devices: 'cuda': driver 570.10 of NVIDIA H100 80GB HBM3 knows CUDA up to 12.4, and torch 2.13.0+cu130 needs "
        "CUDA 13: update the driver, or install a torch built for CUDA 12"
    )
    assert [device.id for device in resolve_devices("auto", old)] == ["cpu"]
    (line,) = left_out(old)
    assert line.startswith("devices: auto leaves out cuda0: driver 570.10 of")
    assert left_out(found(h100())) == []


@pytest.mark.parametrize("options", [{"cuda_driver": 13020}, {"unsupported": ["nvmlSystemGetCudaDriverVersion"]}])
def test_a_driver_that_serves_or_is_not_known_is_taken(found, options):
    assert [device.id for device in resolve_devices(["cuda"], found(h100(), **options))] == ["cuda0"]
