"""For each rule of the audit a table with the fault that it is for, and a sound one."""

from typing import NamedTuple

import numpy as np

from tests.audit_rows import (
    GRID,
    SIZES,
    STEADY,
    Rows,
    column,
    grid,
    longer,
    micro,
    modes,
    optimizers,
    phases,
    rows,
    series,
    timed,
    treated,
)


class Case(NamedTuple):
    """A fault, a sound table, what a finding's subject holds, and how grave it is."""

    faulty: Rows
    sound: Rows
    subject: str = ""
    severity: str = "error"


SMALL_BATCH = [{"treatment": "baseline", "n_tokens": 100, "train_s": 10}, {"treatment": "half", "train_s": 7}]
CASES: dict[str, Case] = {
    "few_samples": Case(
        column("n_samples", 1, step_time_s=0.5, model="a"), column("n_samples", 9, step_time_s=0.5), "a", "warning"
    ),
    "cold_start": Case(timed((0.0725, 0.1233), n_samples=10), timed((0.0725, 0.1233), n_samples=10, warmup_steps=1)),
    "noisy": Case(timed((0.1, 0.01)), timed((0.1, 0.002)), "", "warning"),
    "interval_missing": Case(
        timed((0.1, 0.01), n_samples=10), timed((0.1, 0.01), n_samples=10, step_time_low_s=0.09), "", "note"
    ),
    "printed_cv": Case(timed((0.1, 0.01), cv_percent=12.0), timed((0.1, 0.01), cv_percent=10.0)),
    "time_falls": Case(longer(step_time_s=(2.3, 1.9, 19.0)), longer(step_time_s=(1.2, 1.9, 19.0)), "256"),
    "backward_forward": Case(modes(forward=0.001, backward=0.035), modes(forward=0.01, backward=0.02)),
    "phase_sum": Case(
        modes(forward_backward=0.03, optimizer=0.01, step=0.06),
        modes(forward_backward=0.03, optimizer=0.01, step=0.041),
        "",
        "warning",
    ),
    "launch_bound": Case(
        longer(host_time_s=(0.041, 0.041, 0.041), step_time_s=(0.041, 0.044, 0.070)),
        longer(host_time_s=(0.010, 0.010, 0.011), step_time_s=(0.041, 0.041, 0.042)),
    ),
    "synchronisation": Case(column("sync_check_ratio", 1.02, device="mps"), column("sync_check_ratio", 1.98), "mps"),
    "drift": Case(series(STEADY * np.linspace(1, 1.15, 40)), series(STEADY), "cpu/a", "warning"),
    "two_modes": Case(series(STEADY + 0.01 * (np.arange(40) % 3 == 0)), series(STEADY), "cpu/a", "warning"),
    "anchor_moved": Case(
        column("anchor_s", 1.0, 1.01, 1.2, device="cpu"), column("anchor_s", 1.0, 1.01, 0.99, device="cpu"), "",
        "warning",
    ),
    "busy_machine": Case(
        column("others_cores", 0.6, device="cpu"), column("others_cores", 0.1, 6.0, device="cpu", spare_cores=14)
    ),
    "impossible_rate": Case(
        column("step_time_s", 0.001, flops=1e12, peak_flop_per_s=1e14),
        column("step_time_s", 0.1, flops=1e12, peak_flop_per_s=1e14),
    ),
    "impossible_utilisation": Case(column("mfu", 1.04), column("mfu", 0.4)),
    "rate_collapse": Case([GRID[0], {**GRID[1], "step_time_s": 1.7}], GRID),
    "flat_phase": Case(
        phases((0.32e-3, 0.43e-3, 0.55e-3), (1.2e-3, 2.0e-3, 19.4e-3)), phases((0.3, 1.2, 9.0), (0.6, 2.4, 19.0))
    ),
    "memory_is_count": Case(column("n_allocations", 9), column("n_allocations", 9, peak_allocated_bytes=1e6)),
    "memory_quantity": Case(
        column("peak_reserved_bytes", 1e9), column("peak_reserved_bytes", 1e9, peak_allocated_bytes=9e8), "", "warning"
    ),
    "memory_order": Case(
        column("peak_reserved_bytes", 1e9, peak_allocated_bytes=2e9),
        column("peak_reserved_bytes", 1e9, peak_allocated_bytes=9e8),
    ),
    "near_limit": Case(
        column("peak_reserved_bytes", 15.8e9, device_memory_bytes=16e9),
        column("peak_reserved_bytes", 9e9, device_memory_bytes=16e9),
        "",
        "warning",
    ),
    "limit_assumed": Case(
        column("device_memory_bytes", 16e9, device_memory_bytes_approximate=True),
        column("device_memory_bytes", 16e9),
        "",
        "warning",
    ),
    "memory_falls": Case(
        longer(peak_allocated_bytes=(340e6, 245e6, 3e9)), longer(peak_allocated_bytes=(40e6, 245e6, 3e9)), "256"
    ),
    "memory_flat": Case(
        [{**size, "peak_allocated_bytes": 1e8} for size in SIZES],
        [{**size, "peak_allocated_bytes": 1e2 * size["n_params"]} for size in SIZES],
    ),
    "saving_bounded": Case(optimizers(50e6, 40e6), optimizers(50e6, 43e6), "sgd"),
    "less_than_is_held": Case(  # a million parameters, with gradients and two moments, take 16 MB
        [{**row, "optimizer": "adamw"} for row in optimizers(50e6, 15e6)],
        [{**row, "optimizer": "adamw"} for row in optimizers(50e6, 17e6)],
        "sgd",
    ),
    "lone_gap": Case(
        grid({"fp16": (2.04, 3.71, 3.53), "bf16": (1.82, 3.71, 3.53)}),
        grid({"fp16": (1.82, 3.71, 3.53), "bf16": (1.82, 3.71, 3.53)}),
        "a: fp16 and bf16",
        "warning",
    ),
    "micro_batch_order": Case(
        micro((0.9, 1.7, 2.1), (1.0, 1.6, 1.9)), micro((0.9, 1.5, 1.8), (1.0, 1.6, 1.9)), "", "warning"
    ),
    "identical_losses": Case(
        treated({"baseline": 1.4374, "sgd": 1.4374}), treated({"baseline": 1.4374, "sgd": 1.4375}), "a"
    ),
    "idle_seeds": Case(
        column("seed", 1, 2, model="a", final_val_loss=1.5),
        rows({"seed": 1, "final_val_loss": 1.5}, {"seed": 2, "final_val_loss": 1.51}, model="a"),
    ),
    "read_back": Case(
        column("precision", "bf16", observed_precision="fp32", observed_device="cpu"),
        column("precision", "bf16", observed_precision="bf16", observed_device="cpu"),
    ),
    "precision_undefined": Case(
        column("precision", "float32", device="A100"),
        column("precision", "float32", device="A100", matmul_precision="ieee"),
        "",
        "warning",
    ),
    "several_changes": Case(
        column("changes", "optimizer; schedule", treatment="sgd"),
        column("changes", "optimizer", treatment="sgd"),
        "sgd",
        "warning",
    ),
    "hardly_trained": Case(
        grid({"none": (0.8, 0.5, 0.3), "sgd": (2.6, 2.58, 2.55)}, measure="loss"),
        grid({"none": (0.8, 0.5, 0.3), "sgd": (1.0, 0.6, 0.4)}, measure="loss"),
        "sgd",
        "warning",
    ),
    "autocast_dtypes": Case(
        column("component", "gradients", dtype="FP16"), column("component", "gradients", dtype="FP32"), "gradients"
    ),
    "traced_timing": Case(column("tracer", "memray", train_s=9.0), column("tracer", None, train_s=9.0)),
    "shared_process": Case(
        column("isolation", "one process for all"), column("isolation", "one process a cell"), "", "warning"
    ),
    "zero_for_missing": Case(column("peak_allocated_bytes", 0.0), column("peak_allocated_bytes", None, 3.0)),
    "unequal_tokens": Case(
        [SMALL_BATCH[0] | {"loss": 1.0}, SMALL_BATCH[1] | {"n_tokens": 50, "loss": 1.1}],
        [SMALL_BATCH[0] | {"loss": 1.0}, SMALL_BATCH[1] | {"n_tokens": 100, "loss": 1.1}],
        "half",
    ),
    "split_unnamed": Case(column("loss", 0.8), column("loss", 0.8, loss_split="validation")),
    "many_passes": Case(
        column("n_tokens", 8e7, corpus_train_tokens=1e6),
        column("n_tokens", 8e7, corpus_train_tokens=1e6, final_val_loss=1.5),
        "",
        "warning",
    ),
    "past_its_best": Case(
        column("final_val_loss", 1.70, best_val_loss=1.46),
        column("final_val_loss", 1.47, best_val_loss=1.46),
        "",
        "warning",
    ),
    "few_seeds": Case(column("loss", 0.8, n_seeds=1), column("loss", 0.8, n_seeds=3), "", "warning"),
    "noise_floor": Case(
        column("train_s", 94, 101, 132, model="a", treatment="same", loss=1.7),
        column("train_s", 94, 95, 96, model="a", treatment="same", loss=1.7),
    ),
    "no_repeats": Case(column("step_time_s", 1.0), column("process", 1, 2, step_time_s=1.0), "", "warning"),
    "sittings_mixed": Case(
        column("sitting", "monday", "tuesday"), column("sitting", "monday", "tuesday", anchor_s=1.0), "", "warning"
    ),
    "baseline_missing": Case(
        column("n_layer", 8, baseline="n_layer=4"), column("n_layer", 4, 8, baseline="n_layer=4")
    ),
    "confounded_axes": Case(
        rows({"model": "a", "batch_size": 4}, {"model": "b", "batch_size": 2}, sequence_length=64, mode="step"),
        rows({"model": "a", "batch_size": 4}, {"model": "b", "batch_size": 4}, sequence_length=64, mode="step"),
        "",
        "warning",
    ),
    "too_good": Case(
        rows({"device": "cpu", "final_val_loss": 1.5}, {"device": "mps", "final_val_loss": 1.2}, treatment="baseline"),
        rows({"device": "cpu", "final_val_loss": 1.5}, {"device": "mps", "final_val_loss": 1.49}, treatment="baseline"),
        "mps",
        "warning",
    ),
    "label_against_count": Case(
        column("model", "2.7B", n_params=2.7e9, n_params_counted=3.4068e9),
        column("model", "124M", n_params=124e6, n_params_counted=124.4e6),
        "2.7B",
    ),
    "matched_on": Case(
        rows({"role": "wide", "n_params": 10, "flops_per_token": 100}, {"role": "deep", "n_params": 10,
             "flops_per_token": 121}, matched_on="n_params"),
        rows({"role": "wide", "n_params": 10, "flops_per_token": 100}, {"role": "deep", "n_params": 10,
             "flops_per_token": 104}, matched_on="n_params"),
        "wide and deep",
        "warning",
    ),
    "interaction_ratio": Case(
        grid({"none": (100, 200, 300), "half": (50, 100, 150)}), grid({"none": (100, 200, 300)}), "half", "note"
    ),
    "outside_grid": Case(column("in_grid", "no", role="a"), column("in_grid", "yes", role="a"), "a", "warning"),
    "missing_conditions": Case(
        column("step_time_s", 1.0),
        column("step_time_s", 1.0, device="cuda0", precision="fp32", batch_size=4, sequence_length=64, n_samples=9,
               warmup_steps=3),
        "",
        "warning",
    ),
    "numbers_lost": Case(column("loss", None, None, model="a"), column("loss", 1.0, model="a")),
    "no_result": Case(column("status", "oom", model="xl"), column("status", "ok", model="xl"), "xl", "note"),
    "repeated_key": Case(column("cell", "a", "a", device="cpu"), column("cell", "a", "b", device="cpu"), "cpu a"),
    "shares_sum": Case(column("share", 0.3, 0.3, operator="mm"), column("share", 0.6, 0.4, operator="mm"), "",
                       "warning"),
    "calls_per_layer": Case(
        column("operator", "gemm", n_calls=52, n_layer=12), column("operator", "gemm", n_calls=84, n_layer=12), "gemm",
        "warning",
    ),
    "calls_follow_layers": Case(
        column("found", 12.0, label="cpu/operators", what="products", phase="forward", mode="step", expected=13),
        column("found", 13.0, label="cpu/operators", what="products", phase="forward", mode="step", expected=13),
        "cpu/operators", "warning",
    ),
    "calls_times_mean": Case(
        column("operator", "mm", n_calls=10, call_time_s=1.0, total_time_s=12.0),
        column("operator", "mm", n_calls=10, call_time_s=1.0, total_time_s=10.0),
    ),
    "recorded_in_part": Case(
        [{"label": "h200", "n_planned": 3, "n_lacking": 1, "lacking": ["default-sgd-s3"]}],
        [{"label": "h200", "n_planned": 3, "n_lacking": 0, "lacking": []}],
        "h200",
        "note",
    ),
    "recorded_differently": Case(
        column("recorded_by", "2.12.0", label="h100", part="torch", measured_by="2.13.0"),
        column("recorded_by", "2.13.0", label="h100", part="torch", measured_by="2.13.0"), "h100", "note",
    ),
    "adopted_over_budget": Case(
        column("over_budget", "5.00 GiB on cpu", label="deep", over_ratio=1.25),
        column("over_budget", None, label="deep", over_ratio=None), "deep", "warning",
    ),
    "shared_gpu": Case(
        column("gpu_others", 1, label="cuda0/a", gpu_others_bytes=1e9), column("gpu_others", 0, label="cuda0/a"),
        "cuda0/a", "warning",
    ),
    "equal_hardware": Case(
        column("hardware", "H100", "H100", label="cuda"), column("hardware", "H100", "H200", label="cuda"), "cuda",
        "note",
    ),
    "unequal_evaluation": Case(
        column("eval_windows", "aa", "aa", "bb", sequence_length=64, label="cpu/wide"),
        column("eval_windows", "aa", "aa", sequence_length=64)
        + column("eval_windows", "bb", "bb", sequence_length=128), "cpu/wide",
    ),
    "other_start": Case(
        rows({"device": "cpu", "start_weights": "aa"}, {"device": "gpu", "start_weights": "bb"}, run="wide-s1"),
        rows({"device": "cpu", "run": "wide-s1"}, {"device": "gpu", "run": "wide-s1"}, {"device": "gpu", "run": "s2",
             "start_batches": "bb"}, start_weights="aa"),
        "gpu", "warning",
    ),
    "process_spread": Case(
        column("spread", 0.2, n_processes=3, model="a"), column("spread", 0.01, n_processes=3), "a", "warning"
    ),
}  # fmt: skip
