import importlib.util
import json
import platform
import runpy
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_nvml import GIB, FakeNvml, a100, h100
from workflow_scripts import identify_device
from workflow_scripts.lib import devices, host
from workflow_scripts.lib.devices import detect_devices, device_identity, environment, resolve_devices, torch_build
from workflow_scripts.lib.outcome import Outcome, Unavailable
from workflow_scripts.lib.specs import DeviceSpec, to_json


@pytest.fixture(autouse=True)
def _cuda_build(monkeypatch):
    """As if torch were built with CUDA and all GPUs were visible; the CPU has 4 cores with 2 threads each."""
    monkeypatch.setattr(devices, "torch_build", lambda: {"version": "2.13.0+cu130", "cuda": "13.0"})
    monkeypatch.setattr(host, "available_cores", lambda: (8, 4))
    monkeypatch.setattr(host, "cpu_name", lambda: "Example CPU")
    monkeypatch.setattr(host, "memory_bytes", lambda: 32 * GIB - 12345)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")


def detect(*gpus, **options):
    return detect_devices(FakeNvml(*gpus, **options))


def names(found):
    return [device["uuid"] for device in found if device["type"] == "cuda"]


def test_cpu_and_gpus_are_described():
    cpu, gpu = detect(h100())
    assert cpu == {
        "id": "cpu",
        "type": "cpu",
        "index": None,
        "name": "Example CPU",
        "threads": 4,
        "memory_bytes": 32 * GIB - 12345,
        "physical_cores": 4,
        "logical_cores": 8,
    }
    assert gpu == {
        "id": "cuda0",
        "type": "cuda",
        "index": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-0aaa-bbbb",
        "memory_bytes": 80 * GIB,
        "driver": "570.10",
        "cuda_driver": "13.0",
        "compute_capability": "9.0",
        "pci_bus_id": "0000:01:00.0",
        "mig": False,
        "threads": 4,
        "logical_cores": 8,
        "host_cpu": "Example CPU",
    }


def test_what_a_driver_does_not_tell_is_missing():
    _, gpu = detect(
        h100(), unsupported=["nvmlDeviceGetMemoryInfo", "nvmlSystemGetDriverVersion", "nvmlDeviceGetPciInfo"]
    )
    assert gpu["memory_bytes"] is gpu["driver"] is gpu["pci_bus_id"] is None


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["GPU-0aaa-bbbb", "GPU-1aaa-bbbb", "GPU-2ccc-dddd"]),
        ("2,0", ["GPU-2ccc-dddd", "GPU-0aaa-bbbb"]),
        ("GPU-1", ["GPU-1aaa-bbbb"]),
        ("GPU-2ccc-dddd, 1", ["GPU-2ccc-dddd", "GPU-1aaa-bbbb"]),
        ("", []),
        ("-1,0", []),
        ("0,7,1", ["GPU-0aaa-bbbb"]),
        ("GPU-,0", []),
        ("NoDevFiles", []),
    ],
)
def test_visible_gpus_are_those_that_cuda_shows(monkeypatch, visible, expected):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert names(detect(h100(0), h100(1), a100(2))) == expected


def test_of_a_sliced_gpu_the_visible_slice_is_described(monkeypatch):
    slices = [{"name": "H100 MIG 1g.10gb", "uuid": f"MIG-{i}", "memory": 10 * GIB} for i in range(2)]
    gpu = h100(slices=slices)
    _, first = detect(gpu)
    assert (first["uuid"], first["memory_bytes"], first["mig"]) == ("MIG-0", 10 * GIB, True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    assert names(detect(gpu)) == ["MIG-1"]


def test_apple_silicon_has_mps(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("15.1", ("", "", ""), "arm64"))
    found = detect_devices(FakeNvml())
    assert [device["id"] for device in found] == ["cpu", "mps"]
    mps = resolve_devices(["mps"], found)[0]
    assert mps == DeviceSpec(id="mps", type="mps", threads=4)
    assert device_identity(mps, found)["driver"] == "macOS 15.1"


def test_auto_takes_the_cpu_and_one_gpu_of_each_model():
    found = detect(h100(0), h100(1), a100(2))
    assert [device.id for device in resolve_devices("auto", found)] == ["cpu", "cuda0", "cuda2"]


def test_auto_leaves_out_what_this_torch_cannot_use(monkeypatch):
    monkeypatch.setattr(devices, "torch_build", lambda: {"version": "2.13.0+cpu", "cuda": None})
    found = detect(h100())
    assert [device.id for device in resolve_devices("auto", found)] == ["cpu"]
    with pytest.raises(ValueError, match=r"devices: 'cuda' needs CUDA, and torch 2\.13\.0\+cpu is built without it"):
        resolve_devices(["cuda"], found)


def test_entries_are_resolved():
    found = detect(h100(0), h100(1))
    entries = [
        "cpu",
        "cuda",
        "cuda:1",
        {"id": "one-thread", "type": "cpu", "threads": 1},
        {"type": "cuda", "index": 1, "threads": 2, "id": "gpu_b"},
    ]
    assert resolve_devices(entries, found) == [
        DeviceSpec(id="cpu", type="cpu", threads=4),
        DeviceSpec(id="cuda0", type="cuda", threads=4, index=0),
        DeviceSpec(id="cuda1", type="cuda", threads=4, index=1),
        DeviceSpec(id="one-thread", type="cpu", threads=1),
        DeviceSpec(id="gpu_b", type="cuda", threads=2, index=1),
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["cuda"], "'cuda' is not available here; available are cpu (Example CPU); name one of these"),
        (["cpu", "cuda:3"], "'cuda:3' is not available here"),
        (["mps"], "'mps' is not available here"),
        (["tpu"], "'tpu' names no kind of device"),
        (["cpu:0"], "'cpu:0' names no kind of device"),
        ([{"type": "cpu", "index": 0}], "has an index, which only cuda takes"),
        ([{"type": "cuda:1", "index": 0}], "index 0 in"),
        ([{"type": "cuda", "index": -1}], "index -1 in"),
        ([{"type": "cuda", "index": True}], "index True in"),
        ([{"type": "cpu", "threads": 9}], "threads 9 in {'type': 'cpu', 'threads': 9} must be a number from 1 to 8"),
        ([{"type": "cpu", "threads": 0}], "threads 0 in"),
        ([{"type": "cpu", "threads": 1.5}], "threads 1.5 in"),
        ([{"type": "cpu", "thread": 1}], "unknown key 'thread'"),
        ([{"type": "cpu", "id": "A/b"}], "id 'A/b' in"),
        ([{"id": "x"}], "names no kind of device"),
        (["cpu", "cpu"], "the id 'cpu' is there twice"),
        (["cpu", {"id": "again", "type": "cpu"}], "the device 'cpu with 4 threads' is there twice"),
        ([None], "None names no kind of device"),
        ("cuda", "'cuda' is neither 'auto' nor a list"),
        (None, "None is neither 'auto' nor a list"),
    ],
)
def test_errors_name_key_value_and_what_to_do_in_one_line(value, message):
    with pytest.raises(ValueError, match=r"^devices: ") as caught:
        resolve_devices(value, detect())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


plain = st.none() | st.booleans() | st.integers(-2, 9) | st.floats() | st.sampled_from(["cpu", "cuda:0", "mps", "x"])
entry = plain | st.dictionaries(st.sampled_from(["id", "type", "index", "threads", "other"]), plain) | st.lists(plain)


@given(st.lists(entry, max_size=3) | entry)
def test_any_config_value_resolves_or_is_refused(value):
    found = [
        {"id": "cpu", "type": "cpu", "index": None, "name": "c", "threads": 2, "memory_bytes": 1, "logical_cores": 4},
        {"id": "cuda0", "type": "cuda", "index": 0, "name": "g", "threads": 2, "memory_bytes": 1, "logical_cores": 4},
    ]
    try:
        resolved = resolve_devices(value, found)
    except ValueError as error:
        assert str(error).startswith("devices: ")
    else:
        assert bool(resolved) == (value != [])
        assert all(1 <= device.threads <= 4 for device in resolved)


def test_identity_is_equal_between_equal_gpus_and_calls_and_differs_in_what_matters(monkeypatch):
    found = detect(h100(0), h100(1), a100(2))
    specs = [DeviceSpec(id=f"cuda{i}", type="cuda", threads=4, index=i) for i in range(3)]
    first, second, other = (device_identity(spec, found) for spec in specs)
    assert first == second == device_identity(specs[0], detect(h100(5)))
    assert first != other
    assert first == {
        "type": "cuda",
        "name": "NVIDIA H100 80GB HBM3",
        "threads": 4,
        "memory_gib": 80,
        "driver": "570.10",
        "compute_capability": "9.0",
        "mig": False,
        "host_cpu": "Example CPU",
    }
    cpu = DeviceSpec(id="cpu", type="cpu", threads=2)
    assert device_identity(cpu, found)["memory_gib"] == 32
    assert device_identity(cpu, found) != device_identity(DeviceSpec(id="cpu", type="cpu", threads=4), found)
    assert environment(cpu, found) == {**device_identity(cpu, found), "torch": "2.13.0+cu130"}
    json.dumps(environment(cpu, found))
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    assert environment(specs[0], found)["allocator"] == "max_split_size_mb:64"


def test_identity_of_an_absent_device_is_refused():
    with pytest.raises(ValueError, match="'mps' is not available here"):
        device_identity(DeviceSpec(id="mps", type="mps", threads=1), detect())


def test_the_build_of_torch_is_read_without_importing_it(monkeypatch):
    monkeypatch.undo()
    version = runpy.run_path(importlib.util.find_spec("torch").submodule_search_locations[0] + "/version.py")
    assert torch_build() == {"version": version["__version__"], "cuda": version["cuda"]}


def test_cores_follow_affinity_siblings_and_quota(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    for core in range(4):
        (tmp_path / f"cpu{core}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{core}" / "topology" / "thread_siblings_list").write_text(f"{core % 2},{core % 2 + 2}\n")
    cgroups = tmp_path / "cgroup"
    cgroups.mkdir()
    assert host.available_cores(tmp_path, cgroups) == (4, 2)
    (cgroups / "cpu.max").write_text("max 100000\n")
    assert host.available_cores(tmp_path, cgroups) == (4, 2)
    (cgroups / "cpu.max").write_text("150000 100000\n")
    assert host.available_cores(tmp_path, cgroups) == (1, 1)
    (cgroups / "memory.max").write_text("max\n")
    assert host.memory_bytes(cgroups) > 2**28
    (cgroups / "memory.max").write_text(f"{2**28}\n")
    assert host.memory_bytes(cgroups) == 2**28


def test_the_processor_is_named(monkeypatch, tmp_path):
    monkeypatch.undo()
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some  CPU @ 2 GHz\n")
    assert host.cpu_name(tmp_path / "cpuinfo") == "Some CPU @ 2 GHz"
    assert host.cpu_name(tmp_path / "none")


@pytest.mark.parametrize(
    ("probed", "status"),
    [("0aaa-bbbb", "ok"), ("9999", "barred"), (None, "ok")],
)
def test_identify_device_bars_a_gpu_that_torch_knows_under_another_name(monkeypatch, tmp_path, probed, status):
    found = detect(h100())
    monkeypatch.setattr(identify_device, "detect_devices", lambda: found)
    times = {"wall_s": 1.0, "started_at": "", "ended_at": "", "peak_process_bytes": None}
    outcome = Outcome(status="ok", reason="", result={"uuid": probed}, **times)
    monkeypatch.setattr(identify_device, "run_isolated", lambda *_, **__: outcome)
    spec = to_json(DeviceSpec(id="cuda0", type="cuda", threads=2, index=0))
    identify_device.main(device=tmp_path / "d.json", spec={"device": spec, "code": "c", "environment": {"a": 1}})
    written = json.loads((tmp_path / "d.json").read_text())
    assert written["status"] == status
    assert (written["device"], written["threads"], written["memory_bytes"]) == ("cuda0", 2, 80 * GIB)


def test_a_driver_that_cannot_map_memory_is_told_with_what_to_try(monkeypatch):
    from workflow_scripts.lib import device_probe  # imports torch

    def refuse(*size, device):
        raise RuntimeError("CUDA driver error: operation not supported")

    monkeypatch.setattr(device_probe.torch, "zeros", refuse)
    gpu = to_json(DeviceSpec(id="cuda0", type="cuda", index=0, threads=1))
    with pytest.raises(Unavailable, match="not supported; try PYTORCH_ALLOC_CONF=expandable_segments:False"):
        device_probe.probe_device({"device": gpu}, print)


def test_identify_device_for_real(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("ASSAY_RUNTIME_DIR", str(tmp_path))
    spec = to_json(DeviceSpec(id="cpu", type="cpu", threads=1))
    identify_device.main(device=tmp_path / "d.json", spec={"device": spec, "code": "c", "environment": {}})
    written = json.loads((tmp_path / "d.json").read_text())
    assert written["status"] == "ok", written["reason"]
    assert written["probe"]["threads"] == 1
    assert written["probe"]["torch"] == written["torch"]
    assert written["probe"]["products"]["float32"] is True
