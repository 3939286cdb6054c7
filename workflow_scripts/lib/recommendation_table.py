"""Rows of recommendation.csv: what was advised for a device, and what the cell that checked it measured."""

import json
from pathlib import Path
from typing import Any

from workflow_scripts.lib.counts import count_parameters
from workflow_scripts.lib.estimates import estimate
from workflow_scripts.lib.record_files import read_text
from workflow_scripts.lib.specs import ModelShape, from_json

COLUMNS = (
    "device reason architecture n_layer n_head n_embd n_params n_params_non_embedding batch_size sequence_length "
    "precision execution way_over way_ratio way_pairs train_budget_s n_tokens n_steps predicted_train_s "
    "predicted_step_time_s predicted_step_time_low_s predicted_step_time_high_s bound "
    "predicted_throughput_tokens_per_s predicted_peak_bytes status check_reason step_time_s step_time_low_s "
    "step_time_high_s throughput_tokens_per_s train_s peak_allocated_bytes relative_error record"
).split()
SWEEP_COLUMNS = (
    "device batch_size step_time_s low_s high_s bound throughput_tokens_per_s peak_bytes fits leaves_steps chosen"
).split()


def plan_row(advised: dict[str, Any], train_budget_s: float) -> dict[str, Any]:
    """What was advised; only `reason` and the budget where nothing was."""
    row = {"reason": advised["reason"], "train_budget_s": train_budget_s}
    if advised["reason"]:
        return row
    plan, way = advised["plan"], advised["way"]
    shape, batch, step = from_json(ModelShape, plan["shape"]), plan["batch"], plan["step"]
    params = count_parameters(shape)
    return row | {
        "architecture": shape.architecture, "n_layer": shape.n_layer, "n_head": shape.n_head, "n_embd": shape.n_embd,
        "n_params": params.total, "n_params_non_embedding": params.non_embedding,
        "batch_size": step["batch_size"], "sequence_length": shape.sequence_length,
        "precision": step["precision"], "execution": step["execution"],
        "way_over": f"{way['over']['precision']}, {way['over']['execution']}" if way["over"] else None,
        "way_ratio": way["ratio"] if way["n_pairs"] else None, "way_pairs": way["n_pairs"],
        "n_tokens": plan["n_tokens"], "n_steps": -(-plan["n_tokens"] // (step["batch_size"] * shape.sequence_length)),
        "predicted_train_s": plan["train_s"], "predicted_step_time_s": batch["step_time_s"],
        "predicted_step_time_low_s": batch["low_s"], "predicted_step_time_high_s": batch["high_s"],
        "bound": batch["bound"], "predicted_throughput_tokens_per_s": batch["throughput_tokens_per_s"],
        "predicted_peak_bytes": batch["peak_bytes"],
    }  # fmt: skip


def check_row(record: Path | None, row: dict[str, Any], advised: dict[str, Any]) -> dict[str, Any]:
    """What the check measured; nothing where there is none, or where another model was recommended then."""
    if record is None or row["reason"]:
        return {}
    found = json.loads(read_text(record))
    asked = found.get("spec") or {}
    if (asked.get("model"), asked.get("step")) != (advised["plan"]["shape"], advised["plan"]["step"]):
        return {}
    told = {"status": found["status"], "check_reason": found["reason"], "record": record.as_posix()}
    if found["status"] != "ok":
        return told
    time = estimate(found["result"]["samples_s"])
    tokens = row["batch_size"] * row["sequence_length"]
    return told | {
        "step_time_s": time.median, "step_time_low_s": time.low, "step_time_high_s": time.high,
        "throughput_tokens_per_s": tokens / time.median, "train_s": row["n_tokens"] * time.median / tokens,
        "peak_allocated_bytes": (found["result"].get("memory") or {}).get("peak_allocated_bytes"),
        "relative_error": row["predicted_step_time_s"] / time.median - 1,
    }  # fmt: skip


def sweep_rows(advised: dict[str, Any]) -> list[dict[str, Any]]:
    """The batches that were tried by prediction, the chosen one marked."""
    if advised["reason"]:
        return []
    plan = advised["plan"]
    return [{**batch, "chosen": batch["batch_size"] == plan["step"]["batch_size"]} for batch in plan["batches"]]
