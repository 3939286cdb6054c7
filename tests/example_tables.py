"""A small study's tables, made up: plausible numbers for tests of figures, claims and report, and for nothing else."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from tests.example_measurements import fits, memory, operator_costs, processes, timers
from workflow_scripts.lib.tables import CELL_COLUMNS, RUN_COLUMNS

HOSTILE = "Chip <script>alert(1)</script> & $x_1$"
SAMPLE = "And it came to pass <script>alert('x')</script> & the LORD said unto <b>Moses</b>, \n\nGo down.\n"
SHAPES = {"narrow": (4, 4, 96), "wide": (4, 4, 144), "deep": (8, 4, 96)}
SPEEDS = {"cpu": 6e10, "gpu": 4e12}


def _parameters(n_layer: int, n_embd: int) -> tuple[int, int]:
    core = 12 * n_layer * n_embd**2
    return core + 90 * n_embd, core


def device_ids(n_devices: int) -> list[str]:
    return list(SPEEDS)[:n_devices]


def devices(n_devices: int = 1) -> pd.DataFrame:
    names = {"cpu": ("cpu", HOSTILE, 2, 8 * 2**30, None), "gpu": ("cuda", "Example GPU", 8, 80 * 2**30, "580.1")}
    return pd.DataFrame(
        [
            dict(zip(("device", "type", "name", "threads", "memory_bytes", "driver"), (id, *names[id]), strict=True))
            | {
                "origin": "local",
                "logical_cores": names[id][2],
                "torch": "2.13.0",
                "python": "3.12.1",
                "platform": "Linux-6",
                "host": "example",
                "sync_check_ratio": 1.97,
            }
            for id in device_ids(n_devices)
        ]
    )


def cells(n_devices: int = 1, failures: dict[str, str] | None = None) -> pd.DataFrame:
    """Rows of cells.csv: three shapes, three batches, two contexts, fp32 and a few in bf16; `failures` by cell id."""
    random = np.random.default_rng(7)
    rows = []
    for device in device_ids(n_devices):
        for model, (n_layer, n_head, n_embd) in SHAPES.items():
            for batch in (4, 8, 16):
                for context in (64, 128):
                    for precision in ("fp32", "bf16") if context == 64 and batch == 8 else ("fp32",):
                        cell = f"{model}-b{batch}-t{context}-{precision}"
                        total, core = _parameters(n_layer, n_embd)
                        row = {
                            "device": device, "cell": cell, "base": cell, "attention": "auto", "model": model,
                            "architecture": "gpt2", "n_layer": n_layer,
                            "n_head": n_head, "n_embd": n_embd, "batch_size": batch, "sequence_length": context,
                            "precision": precision, "execution": "eager", "mode": "step", "process": 1,
                            "status": (failures or {}).get(cell, "ok"), "reason": None, "n_params": total,
                            "n_params_non_embedding": core, "flops_per_token": 6 * core, "memory_method": "VmHWM",
                            "tokens_per_step": batch * context,
                            "record": f"results/example/devices/{device}/cells/{cell}.json",
                            "started_at": "2025-03-04T10:00:00+00:00",
                        }  # fmt: skip
                        if row["status"] == "ok":
                            row |= _measured(row, SPEEDS[device] * (0.8 if precision == "bf16" else 1), random)
                        else:
                            row["reason"] = "asked for 9.1 GiB <of> 8"
                        rows.append(row)
    return pd.DataFrame(rows).reindex(columns=CELL_COLUMNS)


def _measured(row: dict, speed: float, random: np.random.Generator) -> dict:
    flops = row["flops_per_token"] * row["tokens_per_step"]
    step = (0.002 * row["n_layer"] / 4 + flops / speed) * float(random.normal(1, 0.01))
    tokens = row["tokens_per_step"]
    return {
        "n_samples": 40, "step_time_s": step, "step_time_low_s": step * 0.985, "step_time_high_s": step * 1.02,
        "step_time_iqr_s": step * 0.03, "step_time_mean_s": step * 1.01, "step_time_std_s": step * 0.04,
        "throughput_tokens_per_s": tokens / step, "throughput_low_tokens_per_s": tokens / step / 1.02,
        "throughput_high_tokens_per_s": tokens / step / 0.985, "achieved_flop_per_s": flops / step,
        "first_step_s": step * 4 + 0.05, "n_cold": 3, "compile_s": None, "anchor_s": 0.011,
        "peak_process_bytes": 3e8 + 40 * row["n_params"], "stop": "interval",
        "predicted_step_time_s": step * float(random.normal(1, 0.05)), "predicted_bound": "compute",
        "moved_bytes_per_step": flops / 30,
        "predicted_peak_bytes": 20.0 * row["n_params"],
    }  # fmt: skip


def curves(n_devices: int = 1, n_rows: int = 60, n_seeds: int = 2) -> pd.DataFrame:
    random = np.random.default_rng(3)
    rows = []
    for device in device_ids(n_devices):
        for name, floor in (("wide", 1.62), ("deep", 1.58)):
            step_time = {"wide": 0.031, "deep": 0.041}[name] * SPEEDS["cpu"] / SPEEDS[device]
            for seed in range(1, n_seeds + 1):
                for index in range(n_rows):
                    step = 1 + index * 10
                    loss = floor + 2.8 * float(np.exp(-step / 120)) + 0.02 * seed
                    rows.append({
                        "device": device, "run": f"{name}-baseline-s{seed}", "name": name, "treatment": "baseline",
                        "seed": seed, "step": step, "tokens": step * 1024, "elapsed_s": step * step_time,
                        "loss": loss + float(random.normal(0, 0.04)), "learning_rate": 1e-3,
                        "grad_norm": 0.6 + 3 / (1 + step / 30) + 0.1 * float(random.random()),
                        "step_time_s": step_time * (4 if index in (0, 31) else float(random.normal(1, 0.02))),
                        "val_loss": loss if index % 6 == 5 else None,
                    })  # fmt: skip
    return pd.DataFrame(rows)


def runs(n_devices: int = 1, n_seeds: int = 2) -> pd.DataFrame:
    rows = []
    for (device, run), curve in curves(n_devices, n_seeds=n_seeds).groupby(["device", "run"], sort=False):
        first, last = curve.iloc[0], curve.dropna(subset="val_loss").iloc[-1]
        n_layer, n_head, n_embd = SHAPES[first["name"]]
        total, core = _parameters(n_layer, n_embd)
        step = float(curve.step_time_s.median())
        rows.append({
            "device": device, "run": run, "name": first["name"], "treatment": "baseline", "seed": int(first.seed),
            "status": "ok", "reason": None, "n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, "n_params": total,
            "n_params_non_embedding": core, "batch_size": 8, "sequence_length": 128, "precision": "fp32",
            "execution": "eager", "n_steps": 600, "n_tokens": 600 * 1024, "step_time_s": step,
            "step_time_low_s": step * 0.99, "step_time_high_s": step * 1.01, "throughput_tokens_per_s": 1024 / step,
            "throughput_low_tokens_per_s": 1024 / step / 1.01, "throughput_high_tokens_per_s": 1024 / step / 0.99,
            "train_s": 600 * step, "eval_s": 3.0, "final_train_loss": last.loss, "final_val_loss": last.val_loss,
            "best_val_loss": last.val_loss, "best_val_step": int(last.step),
            "val_bits_per_byte": last.val_loss / 0.6931,
            "achieved_flop_per_s": 6 * core * 1024 / step, "peak_allocated_bytes": None, "peak_process_bytes": 4e8,
            "record": f"results/example/devices/{device}/runs/{run}/run.json",
            "started_at": "2025-03-05T11:00:00+00:00",
        })  # fmt: skip
    return pd.DataFrame(rows).reindex(columns=RUN_COLUMNS)


def operators(n_devices: int = 1) -> pd.DataFrame:
    shares = {"aten::addmm": 0.41, "aten::mm": 0.22, "aten::scaled_dot_product": 0.14, "aten::gelu": 0.09}
    shares |= {"aten::native_layer_norm": 0.05, "Optimizer.step#AdamW": 0.06, "aten::copy_": 0.03}
    return pd.DataFrame(
        {
            "device": device, "name": name, "operator": operator, "category": "matmul" if "mm" in operator else "other",
            "calls_per_step": 8, "self_time_s": share * 0.03 * tilt, "share": share * tilt, "flops": None,
            "self_memory_bytes": None,
        }
        for device in device_ids(n_devices)
        for name, tilt in (("wide", 1.0), ("deep", 0.96))
        for operator, share in shares.items()
    )  # fmt: skip


def ceilings(n_devices: int = 1) -> pd.DataFrame:
    common = {"low": None, "high": None, "n": 2, "datasheet": None, "source": None, "precision": None}
    rows = [
        common | {"device": device, "quantity": "copy", "value": 5.37e9, "low": 4.7e9, "high": 6.0e9, "unit": "bytes/s"}
        for device in device_ids(n_devices)
    ]
    product = {"quantity": "matrix_product", "precision": "fp32", "value": 1.11e12, "unit": "FLOP/s", "datasheet": 2e12}
    peaks = {"cpu": {}, "gpu": {"value": 5.3e13, "datasheet": None}}
    rows += [common | product | {"device": device} | peaks[device] for device in device_ids(n_devices)]
    return pd.DataFrame(rows).assign(best=lambda table: 1.1 * table["value"])


def selection() -> dict:
    roles = {}
    for role in ("wide", "deep"):
        n_layer, n_head, n_embd = SHAPES[role]
        total, core = _parameters(n_layer, n_embd)
        shape = {"architecture": "gpt2", "n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, "n_inner": 4 * n_embd}
        roles[role] = {
            "shape": shape | {"vocab_size": 90, "sequence_length": 128, "dropout": 0.0, "bias": True},
            "params": {"total": total, "non_embedding": core, "token_embedding": 90 * n_embd, "head": 0},
            "flops_per_token": 6 * core,
            "predicted": {"cpu": {"step_time_s": 0.03, "train_s": 18.4, "peak_bytes": 2e8}},
        }
    return {
        "quantity": "non_embedding", "tolerance": 0.02, "n_candidates": 812, "n_matched_pairs": 51,
        "n_within_budgets": 34,
        "budgets": {"memory_gib": 4, "train_minutes": 5}, "roles": roles,
        "ratios": {
            "total": 0.88, "non_embedding": 0.992, "flops_per_token": 1.03, "activation_elements_per_token": 1.36,
            "n_layer": 2.0,
        },
        "reasons": ["Both have 4 heads.", "They differ by 0.8 % <in> parameters."],
        "runners_up": [{"wide": "4 × 160", "deep": "9 × 112", "mismatch": 0.0131, "wide_size": 1_228_800}],
    }  # fmt: skip


def candidates() -> pd.DataFrame:
    rows = []
    for n_layer in range(1, 13):
        for n_embd in range(32, 225, 16):
            total, core = _parameters(n_layer, n_embd)
            role = next((role for role in ("wide", "deep") if SHAPES[role] == (n_layer, 4, n_embd)), None)
            rows.append({
                "device": "cpu", "n_layer": n_layer, "n_embd": n_embd, "n_head": 4, "n_params": total,
                "n_params_non_embedding": core, "flops_per_token": 6 * core, "size": core,
                "near_size": abs(core / 1e6 - 1) < 0.1, "step_time_s": core * 1e-7, "train_s": core * 6e-5,
                "peak_bytes": core * 3000, "over_memory": core * 3000 > 2**32, "over_time": core * 6e-5 > 300,
                "role": role,
            })  # fmt: skip
    return pd.DataFrame(rows)


def write_study(directory: Path, *, n_devices: int = 1, **replaced: object) -> dict[str, Path]:
    """Writes the whole example study below `directory` and returns the named inputs of figures and report."""
    tables = {
        "cells": cells(n_devices), "runs": runs(n_devices), "curves": curves(n_devices), "devices": devices(n_devices),
        "operators": operators(n_devices), "processes": processes(), "ceilings": ceilings(n_devices),
        "memory": memory(), "operator_costs": operator_costs(),
        "fits": fits(), "timers": timers(), "candidates": candidates(),
    }  # fmt: skip
    files: dict[str, object] = {
        "selection": selection(),
        "cost_model": {
            "features": ["step", "flops"],
            "devices": {
                device: {
                    "type": "cpu", "rates": {}, "cases": {}, "errors": {"fp32-eager": {
                        "n_fitted": 18, "leave_one_out_error": 0.047, "within_interval": 0.94,
                        "uncorrected_error": 0.14,
                        "error_from": {"3": 0.08, "8": 0.06},
                    }},
                }
                for device in device_ids(n_devices)
            },
        },
        "corpus": {
            "source": "kjv", "source_sha256": "ab" * 32, "source_bytes": 4_300_000, "n_characters": 4_290_000,
            "tokenizer": {"kind": "character", "vocab_size": 90, "vocabulary": ["a", "<"]}, "vocab_size": 90,
            "dtype": "uint8", "n_tokens": 4_290_000, "tokens_sha256": "cd" * 32,
            "splits": {"train": {"start": 0, "stop": 3_861_000, "n_bytes": 3_870_000, "sha256": "ee" * 32},
                       "validation": {"start": 3_861_000, "stop": 4_290_000, "n_bytes": 430_000, "sha256": "ff" * 32}},
        },
        "findings": [
            {"rule": "wide_spread", "severity": "warning", "subject": "cpu/wide-b8-t64-fp32",
             "message": "Processes differ by 1.2 % <b>", "advice": "Close other programs.",
             "numbers": {"spread": 0.012}},
        ],
    }  # fmt: skip
    tables |= {name: value for name, value in replaced.items() if name in tables}
    files |= {name: value for name, value in replaced.items() if name in files}
    paths = {}
    for name, table in tables.items():
        paths[name] = directory / "tables" / f"{name}.csv"
        paths[name].parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(paths[name], index=False)
    for name, value in files.items():
        paths[name] = directory / f"{name}.json"
        paths[name].write_text(json.dumps(value))
    paths["study"] = directory / "study.yaml"
    paths["study"].write_text("name: example\nnote: <i>hostile</i>\n")
    return paths


def write_samples(directory: Path, n_devices: int = 1) -> list[Path]:
    """Writes a sample of text for each run, as training does."""
    paths = []
    for row in runs(n_devices).itertuples():
        path = directory / "devices" / row.device / "runs" / row.run / "samples.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SAMPLE * 40)
        paths.append(path)
    return paths
