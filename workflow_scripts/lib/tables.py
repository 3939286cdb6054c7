"""Rows of the tables: what a record holds, with its statistics, in named columns with units."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workflow_scripts.lib.corpus import bits_per_byte
from workflow_scripts.lib.counts import count_parameters, flops_per_token
from workflow_scripts.lib.estimates import estimate
from workflow_scripts.lib.gpu import Gpu
from workflow_scripts.lib.loss_history import step_noise
from workflow_scripts.lib.machine_columns import energy_per_step_j, machine_columns
from workflow_scripts.lib.memory_model import estimate_memory
from workflow_scripts.lib.record_files import read_text
from workflow_scripts.lib.records import read_record
from workflow_scripts.lib.specs import ModelShape, OptimizerSpec, StepSpec, canonical, from_json

CURVE_ROWS = 500
"""Rows of a run's curve that are kept for drawing; the whole history stays in its metrics.csv."""


def write_table(path: Path, rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    """Writes rows as CSV: floats in full, what is missing as an empty field, every column even without rows."""
    pd.DataFrame(list(rows), columns=list(columns)).to_csv(path, index=False)


def shape_columns(shape: ModelShape) -> dict[str, Any]:
    """The columns that describe a model."""
    params = count_parameters(shape)
    return {
        "architecture": shape.architecture,
        "n_layer": shape.n_layer,
        "n_head": shape.n_head,
        "n_embd": shape.n_embd,
        "n_params": params.total,
        "n_params_non_embedding": params.non_embedding,
        "flops_per_token": flops_per_token(shape, shape.sequence_length).training,
    }


def throughput_columns(samples_s: Sequence[float], tokens_per_step: int, flops_per_step: float) -> dict[str, Any]:
    """Step time, throughput and achieved FLOP/s of warm samples, with the 95 % interval of the median."""
    time = estimate(samples_s)

    def rate(work: float, seconds: float | None) -> float | None:
        return work / seconds if seconds else None

    return {
        "n_samples": time.n,
        "step_time_s": time.median,
        "step_time_low_s": time.low,
        "step_time_high_s": time.high,
        "step_time_iqr_s": time.iqr,
        "step_time_mean_s": time.mean,
        "step_time_std_s": time.std,
        "throughput_tokens_per_s": rate(tokens_per_step, time.median),
        "throughput_low_tokens_per_s": rate(tokens_per_step, time.high),
        "throughput_high_tokens_per_s": rate(tokens_per_step, time.low),
        "achieved_flop_per_s": rate(flops_per_step, time.median),
    }


# Share of a training step's FLOPs that each mode computes: a forward is a third of it, its backward two thirds.
FLOP_SHARE = {"forward": 1 / 3, "forward_backward": 1.0, "step": 1.0, "optimizer": 0.0}

CELL_COLUMNS = (
    "device cell base model architecture n_layer n_head n_embd n_params n_params_non_embedding flops_per_token "
    "batch_size sequence_length precision execution mode attention process status reason tokens_per_step "
    "n_samples step_time_s step_time_low_s step_time_high_s step_time_iqr_s step_time_mean_s step_time_std_s "
    "throughput_tokens_per_s throughput_low_tokens_per_s throughput_high_tokens_per_s achieved_flop_per_s "
    "first_step_s n_cold compile_s anchor_s peak_allocated_bytes peak_reserved_bytes peak_process_bytes "
    "memory_method stop predicted_step_time_s predicted_step_time_low_s predicted_step_time_high_s predicted_bound "
    "moved_bytes_per_step predicted_peak_bytes energy_per_step_j others_cores on_battery "
    "clock_mhz temperature_c throttle card started_at code commit record"
).split()


def cell_row(path: Path) -> dict[str, Any]:
    """The row of a cell's record; what is predicted of its time is the cost model's to fill, see `cost_fits`."""
    record = read_record(path)
    cell, result = record["spec"], record["result"] or {}
    shape = from_json(ModelShape, cell["model"])
    step = from_json(StepSpec, cell["step"])
    tokens = step.batch_size * shape.sequence_length
    columns = shape_columns(shape)
    memory = result.get("memory", {})
    samples = result.get("samples_s", [])
    timing = throughput_columns(samples, tokens, tokens * columns["flops_per_token"] * FLOP_SHARE[cell["mode"]])
    if cell["mode"] == "optimizer":  # it works on parameters, not on tokens
        timing |= {name: None for name in timing if "tokens_per_s" in name or "flop_per_s" in name}
    cold = result.get("cold_s", [])
    in_order = [*cold, *samples]
    anchor = result.get("anchor_s") or []
    predicted = estimate_memory(
        shape,
        step,
        from_json(OptimizerSpec, cell["optimizer"]),
        cell["device"]["type"],
        resident_bytes=memory.get("data_bytes") or 0,
        mode=cell["mode"],
        gpu=Gpu.of(record["environment"]),
        threads=cell["device"]["threads"],
    )
    return {
        "device": cell["device"]["id"],
        "cell": cell["id"],
        "base": cell["base"],
        "model": cell["name"],
        **columns,
        "batch_size": step.batch_size,
        "sequence_length": shape.sequence_length,
        "precision": step.precision,
        "execution": step.execution,
        "mode": cell["mode"],
        "attention": step.attention,
        "process": cell["process"],
        "status": record["status"],
        "reason": record["reason"],
        "tokens_per_step": tokens,
        **timing,
        "first_step_s": in_order[0] if in_order else None,
        "n_cold": len(cold) if in_order else None,
        "compile_s": result.get("compile_s"),
        "anchor_s": estimate(anchor).median,
        "peak_allocated_bytes": memory.get("peak_allocated_bytes"),
        "peak_reserved_bytes": memory.get("peak_reserved_bytes"),
        "peak_process_bytes": record["peak_process_bytes"],
        "memory_method": memory.get("method"),
        "stop": result.get("stop"),
        "predicted_step_time_s": None,
        "predicted_peak_bytes": predicted.peak_bytes,
        "energy_per_step_j": energy_per_step_j(result, samples),
        **machine_columns(result),
        **{name: record[name] for name in ("started_at", "code", "commit")},
        "record": path.as_posix(),
    }


RUN_COLUMNS = (
    "device run name treatment levels seed status reason architecture n_layer n_head n_embd n_params "
    "n_params_non_embedding flops_per_token batch_size sequence_length precision execution accumulation attention "
    "checkpointing dropout optimizer learning_rate schedule momentum n_steps n_tokens "
    "n_samples step_time_s step_time_low_s step_time_high_s step_time_iqr_s step_time_mean_s step_time_std_s "
    "throughput_tokens_per_s throughput_low_tokens_per_s throughput_high_tokens_per_s achieved_flop_per_s "
    "first_step_s train_s eval_s checkpoint_s wall_s final_train_loss final_val_loss best_val_loss best_val_step "
    "val_bits_per_byte train_loss_noise peak_allocated_bytes peak_reserved_bytes peak_process_bytes "
    "energy_per_step_j others_cores on_battery clock_mhz temperature_c throttle card started_at code commit record"
).split()


def run_row(path: Path, metrics: pd.DataFrame, corpus: dict[str, Any]) -> dict[str, Any]:
    """The row of a run's record and its metrics; `train_s` is without each process's first step, which may compile."""
    record = read_record(path)
    run, result = record["spec"], record["result"] or {}
    shape = from_json(ModelShape, run["model"])
    tokens_per_step = run["step"]["batch_size"] * shape.sequence_length
    columns = shape_columns(shape)
    cold = {1, *(step + 1 for step in result.get("resumed_at_steps") or [])}  # first in a process, and no usual step
    first_steps_s = float(metrics.loc[metrics["step"].isin(cold), "step_time_s"].sum())
    steps = metrics.loc[~metrics["step"].isin(cold), "step_time_s"].to_list()
    validation = corpus["splits"]["validation"]
    final, memory = result.get("final_val_loss"), result.get("memory") or {}
    per_byte = bits_per_byte(final, validation["stop"] - validation["start"], validation["n_bytes"]) if final else None
    return {
        "device": run["device"]["id"],
        "run": run["id"],
        "name": run["name"],
        "treatment": run["treatment"],
        "levels": canonical(run["levels"]),
        "seed": run["seed"],
        "status": record["status"],
        "reason": record["reason"],
        **columns,
        "batch_size": run["step"]["batch_size"],
        "sequence_length": shape.sequence_length,
        "precision": run["step"]["precision"],
        **{name: run["step"][name] for name in ("execution", "accumulation", "attention", "checkpointing")},
        "dropout": shape.dropout,
        "optimizer": run["optimizer"]["name"],
        **{name: run["optimizer"][name] for name in ("learning_rate", "schedule", "momentum")},
        "n_steps": len(metrics),
        "n_tokens": len(metrics) * tokens_per_step,
        **throughput_columns(steps, tokens_per_step, tokens_per_step * columns["flops_per_token"]),
        **{name: result.get(name) for name in ("first_step_s", "eval_s", "checkpoint_s")},
        "train_s": None if result.get("train_s") is None else max(result["train_s"] - first_steps_s, 0.0),
        "wall_s": record["wall_s"],
        "final_train_loss": metrics["loss"].iloc[-1] if len(metrics) else None,
        **{name: result.get(name) for name in ("final_val_loss", "best_val_loss", "best_val_step")},
        "val_bits_per_byte": per_byte,
        "train_loss_noise": step_noise(metrics["loss"].to_numpy(float)),
        **{name: memory.get(name) for name in ("peak_allocated_bytes", "peak_reserved_bytes")},
        "peak_process_bytes": record["peak_process_bytes"],
        "energy_per_step_j": energy_per_step_j(result, steps),
        **machine_columns(result),
        **{name: record[name] for name in ("started_at", "code", "commit")},
        "record": path.as_posix(),
    }


CURVE_COLUMNS = (
    "device run name treatment seed step tokens elapsed_s loss learning_rate grad_norm step_time_s val_loss"
).split()


def curve(path: Path, metrics: pd.DataFrame) -> pd.DataFrame:
    """A run's history, thinned to at most `CURVE_ROWS` evenly spaced rows and every evaluation."""
    run = json.loads(read_text(path))["spec"]
    stride = -(-len(metrics) // CURVE_ROWS) or 1
    kept = metrics[(metrics.index % stride == 0) | metrics["val_loss"].notna()].copy()
    identity = {"device": run["device"]["id"], "run": run["id"]} | {k: run[k] for k in ("name", "treatment", "seed")}
    for place, (name, value) in enumerate(identity.items()):
        kept.insert(place, name, value)
    return kept[CURVE_COLUMNS]
