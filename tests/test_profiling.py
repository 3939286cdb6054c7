"""Profiles: shares that add up, FLOPs that an independent count confirms, a trace that opens, failures as data."""

import csv
import dataclasses
import gzip
import json
import socket
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from torch.utils.flop_counter import FlopCounterMode

from tests import tiny_run
from workflow_scripts import profile_model
from workflow_scripts.lib.operator_categories import CATEGORIES, IDLE, category_of
from workflow_scripts.lib.operator_table import OperatorRow, attention_flops, sum_operators
from workflow_scripts.lib.outcome import Outcome, Unavailable
from workflow_scripts.lib.profiling import profile
from workflow_scripts.lib.specs import DeviceSpec, to_json
from workflow_scripts.lib.step import TrainStep


def arguments(folder: Path, spec=tiny_run.PROFILE) -> dict[str, str]:
    paths = {**tiny_run.write_corpus(folder), "operators": folder / "operators.csv", "trace": folder / "trace.json.gz"}
    return {"profile": to_json(spec), **{key: str(path) for key, path in paths.items()}}


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile")
    return profile(arguments(folder), lambda message: None), folder


def operators(folder: Path) -> list[dict[str, str]]:
    with (folder / "operators.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_shares_sum_to_one_with_the_idle_rest_named(profiled):
    result, folder = profiled
    rows = operators(folder)
    assert list(rows[0]) == list(OperatorRow._fields)
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1.0, abs=1e-9)
    assert sum(result["categories"].values()) == pytest.approx(1.0, abs=1e-9)
    assert sum(result["phases"].values()) + result["idle_share"] == pytest.approx(1.0, abs=1e-9)
    assert rows[-1]["operator"] == IDLE
    assert rows[-1]["flops"] == ""
    assert {row["category"] for row in rows} <= set(CATEGORIES)
    times = [float(row["self_time_s"]) for row in rows[:-1]]
    assert times == sorted(times, reverse=True)
    assert sum(times) == pytest.approx(result["traced_s"])
    assert sum(times) <= result["step_wall_s"]
    assert result["slowdown"] > 0
    for category in ("matrix product", "attention", "normalisation", "loss", "embedding", "optimizer"):
        assert result["categories"][category] > 0
    json.dumps(result, allow_nan=False)


def test_flops_are_those_that_torchs_own_counter_finds(profiled):
    _, folder = profiled
    spec = tiny_run.PROFILE
    step = TrainStep.build(
        spec.model, spec.step, spec.optimizer, spec.device, tokens=np.arange(99) % 9, n_steps=1, seed=1
    )
    with FlopCounterMode(display=False) as counter:
        step.forward_backward()
    expected = {str(name): count for name, count in counter.get_flop_counts()["Global"].items()}
    found = {"products": 0.0, "attention": 0.0}
    for row in operators(folder):
        if row["category"] in ("matrix product", "attention") and row["flops"]:
            found["products" if row["category"] == "matrix product" else "attention"] += float(row["flops"])
    assert found["products"] == sum(count for name, count in expected.items() if "mm" in name)
    # The counter does not know the CPU's fused attention: two products forward and five backward, by hand.
    shape, heads = spec.model, spec.model.n_head
    product = 2 * spec.step.batch_size * heads * shape.sequence_length**2 * (shape.n_embd // heads)
    assert found["attention"] == 7 * product * shape.n_layer
    mm = next(row for row in operators(folder) if row["operator"] == "aten::mm" and row["phase"] == "backward")
    assert float(mm["calls_per_step"]) == 2 * (4 * spec.model.n_layer + 1)  # two for each of the linear maps


def test_the_trace_is_one_that_perfetto_opens_and_names_no_machine(profiled):
    result, folder = profiled
    packed = (folder / "trace.json.gz").read_bytes()
    text = gzip.decompress(packed).decode()
    trace = json.loads(text)
    complete = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    assert {"step 1", "step 2", "step 3", "aten::addmm"} <= {event["name"] for event in complete}
    assert all(event["dur"] >= 0 and "ts" in event and "pid" in event and "tid" in event for event in complete)
    assert result["trace_bytes"] == len(packed) < 1_000_000
    assert str(folder) not in text
    assert "host_name" not in trace
    assert socket.gethostname() not in (str(value) for value in trace.values())


def event(name, *, cpu=0.0, device=0.0, kernels=(), parent=None, memory=0, on="CPU", mark=False, shapes=()):
    """An event as the profiler gives it, times in microseconds."""
    return SimpleNamespace(
        name=name,
        device_type=SimpleNamespace(name=on),
        self_cpu_time_total=cpu,
        self_device_time_total=device,
        self_cpu_memory_usage=memory,
        self_device_memory_usage=memory,
        kernels=[SimpleNamespace(name=kernel, duration=duration) for kernel, duration in kernels],
        flops=0,
        input_shapes=shapes,
        cpu_parent=parent,
        is_user_annotation=mark,
    )


def test_kernels_count_under_their_operator_or_under_their_own_name():
    events = [
        event("step 1", mark=True),
        event("aten::mm", cpu=900.0, kernels=[("gemm", 30.0), ("gemm", 10.0)]),
        event("gemm", device=30.0, on="CUDA"),
        event("gemm", device=10.0, on="CUDA"),
        event("gemm", device=20.0, on="CUDA"),  # from a replayed graph: nobody's
        event("step 1", device=90.0, on="CUDA", mark=True),
        event("Optimizer.step#AdamW.step", device=50.0, on="CUDA", mark=True),
    ]
    mm, gemm, idle = sum_operators(events, n_steps=2, wall_s=100e-6, on_device=True)
    assert (mm.operator, mm.self_time_s, mm.share, mm.calls_per_step) == ("aten::mm", 20e-6, pytest.approx(0.4), 0.5)
    assert (gemm.operator, gemm.category, gemm.share) == ("gemm", "matrix product", pytest.approx(0.2))
    assert (idle.operator, idle.share) == (IDLE, pytest.approx(0.4))


def test_what_the_profiler_itself_waits_for_is_no_work():
    events = [
        event("aten::mm", kernels=[("gemm", 60.0)]),
        event("gemm", device=60.0, on="CUDA"),
        event("Command Buffer Full", kernels=[("Command Buffer Full", 500.0)]),
        event("Activity Buffer Request", device=70.0, on="CUDA"),
    ]
    mm, idle = sum_operators(events, n_steps=1, wall_s=100e-6, on_device=True)
    assert (mm.share, idle.share) == (pytest.approx(0.6), pytest.approx(0.4))


def test_overlapping_kernels_are_shares_of_their_sum():
    events = [event("gemm", device=80.0, on="CUDA"), event("softmax", device=80.0, on="CUDA")]
    *rows, idle = sum_operators(events, n_steps=1, wall_s=100e-6, on_device=True)
    assert [row.share for row in rows] == [0.5, 0.5]
    assert idle.share == 0


def test_memory_is_booked_to_who_asked_and_phases_to_who_called():
    node = event("autograd::engine::evaluate_function: MmBackward0", cpu=1.0)
    mm = event("aten::mm", cpu=5.0, parent=node)
    step = event("Optimizer.step#AdamW.step", mark=True, cpu=1.0)
    events = [
        node,
        mm,
        event("aten::empty", cpu=1.0, parent=mm, memory=64),
        step,
        event("aten::mul_", cpu=2.0, parent=step),
        event("aten::mul_", cpu=3.0),
        event("[memory]", memory=-16),
    ]
    rows = {(row.operator, row.phase): row for row in sum_operators(events, n_steps=1, wall_s=1.0, on_device=False)}
    assert rows["aten::mm", "backward"].self_memory_bytes == 64
    assert rows["aten::empty", "backward"].self_memory_bytes == 0
    assert rows["aten::mul_", "optimizer"].category == "optimizer"
    assert rows["aten::mul_", "forward"].category == "elementwise"
    assert sum(row.self_memory_bytes or 0 for row in rows.values()) == 48


@pytest.mark.parametrize(
    ("operator", "category"),
    [
        ("aten::addmm", "matrix product"),
        ("ampere_sgemm_128x64_tn", "matrix product"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", "matrix product"),
        ("aten::_scaled_dot_product_flash_attention_backward", "attention"),
        ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "attention"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", "attention"),
        ("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*)", "attention"),
        ("aten::native_layer_norm_backward", "normalisation"),
        ("triton_per_fused_native_layer_norm_0", "normalisation"),
        ("aten::_fused_rms_norm", "normalisation"),
        ("aten::_log_softmax_backward_data", "loss"),
        ("LogSoftmaxBackward0", "loss"),
        ("triton_red_fused__log_softmax_nll_loss_forward_3", "loss"),
        ("aten::_softmax_backward_data", "softmax"),
        ("aten::_safe_softmax", "softmax"),
        ("aten::embedding_dense_backward", "embedding"),
        ("aten::gelu_backward", "elementwise"),
        ("triton_poi_fused_gelu_7", "elementwise"),
        ("aten::_fused_adamw_", "optimizer"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel", "optimizer"),
        ("Optimizer.step#SGD.step", "optimizer"),
        ("Memcpy HtoD (Pageable -> Device)", "copy"),
        ("aten::_to_copy", "copy"),
        ("aten::view", "other"),
        ("cudaLaunchKernel", "other"),
    ],
)
def test_categories(operator, category):
    assert category_of(operator) == category


def test_attention_is_counted_by_hand_where_its_time_is():
    shapes = [[2, 3, 8, 4], [2, 3, 16, 4], [2, 3, 16, 4]]
    product = 2 * 2 * 3 * 8 * 16 * 4
    outer = event("aten::_scaled_dot_product_cudnn_attention", shapes=shapes)
    assert attention_flops(outer) == 0
    assert attention_flops(event("aten::_cudnn_attention_forward", parent=outer)) == 2 * product
    outer = event("aten::_scaled_dot_product_flash_attention_backward", shapes=[[2, 3, 8, 4], *shapes])
    assert attention_flops(event("aten::_flash_attention_backward", parent=outer)) == 5 * product
    assert attention_flops(event("aten::_scaled_dot_product_flash_attention_for_cpu", shapes=shapes)) == 2 * product
    assert attention_flops(event("aten::_scaled_dot_product_flash_attention_for_cpu")) == 0
    assert attention_flops(event("aten::mm", shapes=[[2, 3], [3, 4]])) == 0


def test_no_profile_is_made_up_for_a_device_without_one(tmp_path):
    spec = dataclasses.replace(tiny_run.PROFILE, device=DeviceSpec(id="mps", type="mps", threads=1))
    with pytest.raises(Unavailable, match="mps"):
        profile(arguments(tmp_path, spec), lambda message: None)


def test_a_profile_that_failed_still_leaves_files_that_open(tmp_path, monkeypatch):
    outcome = Outcome(
        status="oom", reason="no memory", result=None, peak_process_bytes=1, wall_s=1.0, started_at="a", ended_at="b"
    )
    monkeypatch.setattr(profile_model, "run_isolated", lambda *args, **kwargs: outcome)
    paths = {key: Path(value) for key, value in arguments(tmp_path).items() if key != "profile"}
    spec = {"profile": to_json(tiny_run.PROFILE), "study": "tiny", "code": "c0de", "environment": {}}
    inputs = {"device": tmp_path / "device.json", "calibration": tiny_run.write_calibration(tmp_path)}
    profile_model.main(**paths, **inputs, record=tmp_path / "profile.json", spec=spec)
    record = json.loads((tmp_path / "profile.json").read_text())
    assert (record["kind"], record["id"], record["status"], record["reason"]) == ("profile", "tiny", "oom", "no memory")
    assert operators(tmp_path) == []
    trace = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    assert trace["traceEvents"] == []
    assert "no memory" in trace["title"]
