"""Brings the tables of a study into the form that rules read, with what records say of what really ran.

A row's label is `device/cell` or `device/run`, by which the report finds the rows that a finding concerns.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workflow_scripts.lib.audit.frames import Row, each
from workflow_scripts.lib.audit.own_devices import hardware
from workflow_scripts.lib.audit.treatments import SHAPED
from workflow_scripts.lib.record_files import read_text
from workflow_scripts.lib.schedule import rates_at
from workflow_scripts.lib.specs import OptimizerSpec, from_json

# Parts of a run's spec that leave every product and sum as it was, so that an equal loss is right.
SAME_ARITHMETIC = ("id", "treatment", "checkpointing", "execution", "attention")
QUANTITIES = {"non_embedding": "n_params_non_embedding", "total": "n_params", "flops_per_token": "flops_per_token"}
PRODUCTS = {"fp32": "ieee", "tf32": "tf32"}
# What of a training's result must be the same on every device, by its column here.
IDENTICAL = {"eval_windows": "eval_windows_sha256", "start_weights": "init_sha256", "start_batches": "offsets_sha256"}
OPTIMIZER_CLASSES = {"muonwithadamw": "muon"}


def material(
    *,
    cells: pd.DataFrame,
    runs: pd.DataFrame,
    processes: pd.DataFrame,
    operators: pd.DataFrame,
    devices: pd.DataFrame,
    ceilings: pd.DataFrame,
    selection: dict[str, Any],
    recorded: pd.DataFrame,
    folder: Path,
) -> dict[str, pd.DataFrame]:
    """Gives the tables to audit, by name; any of them may have no rows.

    Args:
        cells: and the other tables, as in results/{study}/tables.
        selection: selection.json, or {} where the study names its models.
        recorded: what measured the recorded devices; see `own_devices.recordings`.
        folder: what the paths in the column `record` are relative to.
    """
    cells = cells.sort_values("started_at", kind="stable") if "started_at" in cells else cells  # as they were measured
    records = {path: _record(folder / path) for path in [*_column(cells, "record"), *_column(runs, "record")]}
    return {
        "cells": _with_noise(_with_ceilings(_measured(cells, devices, records, "cell"), ceilings), processes),
        "samples": _samples(cells, records),
        "runs": _with_ceilings(_measured(runs, devices, records, "run"), ceilings),
        "processes": _labelled(processes, "cell"),
        "operators": operators,
        "selection": _roles(selection, cells),
        "recordings": recorded,
        "devices": hardware(devices),
    }


def _column(table: pd.DataFrame, name: str) -> list[str]:
    return [str(found) for found in table[name].dropna()] if name in table.columns else []


def _record(path: Path) -> dict[str, Any]:
    """A record, or {} where it lies elsewhere."""
    try:
        return json.loads(read_text(path))
    except FileNotFoundError:
        return {}


def _labelled(table: pd.DataFrame, key: str) -> pd.DataFrame:
    if table.empty:
        return table
    return table.assign(label=[f"{device}/{name}" for device, name in zip(table["device"], table[key], strict=True)])


def _measured(table: pd.DataFrame, devices: pd.DataFrame, records: dict[str, dict[str, Any]], key: str) -> pd.DataFrame:
    """Adds device limits, what was observed, and what Assay guarantees of every job."""
    if table.empty:
        return table
    table = _labelled(table, key)
    if not devices.empty:
        limits = devices.set_index("device")
        for column, name in (("threads", "threads"), ("memory_bytes", "device_memory_bytes")):
            on_device = limits[column].where(limits["type"].eq("cpu") == (column == "threads"))
            table[name] = table["device"].map(on_device)
        # A GPU is fed by two threads: one calls the forward, one the backward.
        used = limits["threads"].where(limits["type"].eq("cpu"), 2)
        table["spare_cores"] = table["device"].map((limits["logical_cores"] - used).clip(lower=0))
    # The first step is never among the samples of a run, and of a cell only if it was as fast as the rest.
    table["warmup_steps"] = table["n_cold"].clip(lower=1) if "n_cold" in table.columns else 1
    observed = [_observed(records.get(str(path), {}), row) for path, row in
                zip(table.get("record", pd.Series("", index=table.index)), each(table), strict=True)]  # fmt: skip
    seen = pd.DataFrame(observed, index=table.index)
    table = pd.concat([table.drop(columns=table.columns.intersection(seen.columns)), seen], axis=1)
    table["memory_quantity"] = "allocated"
    by_name = table["precision"].map(PRODUCTS)
    table["matmul_precision"] = table["matmul_precision"].fillna(by_name) if "matmul_precision" in table else by_name
    return table.assign(isolation="one process a cell")


def _with_noise(cells: pd.DataFrame, processes: pd.DataFrame) -> pd.DataFrame:
    """Adds the largest spread that fresh processes of one cell had on the device."""
    if cells.empty or processes.empty:
        return cells
    return cells.assign(noise_floor=cells["device"].map(processes.groupby("device").spread.max()))


def _with_ceilings(table: pd.DataFrame, ceilings: pd.DataFrame) -> pd.DataFrame:
    """Adds the best rates that calibration saw: of products in the row's precision, and of copies."""
    if table.empty or ceilings.empty:
        return table
    best = ceilings.set_index(["device", "quantity", "precision"])["best"].to_dict()
    rows = list(zip(table["device"], table["precision"], strict=True))
    copies = {device: rate for (device, quantity, _), rate in best.items() if quantity == "copy"}
    return table.assign(
        peak_flop_per_s=[best.get((device, "matrix_product", precision)) for device, precision in rows],
        peak_bytes_per_s=[copies.get(device) for device, _ in rows],
    )


def _observed(record: dict[str, Any], row: Row) -> dict[str, Any]:
    """What was asked for and what the record read back, in the words of the table."""
    if not record:
        return {}
    spec, seen = record["spec"], (record.get("result") or {}).get("observed") or {}
    found: dict[str, Any] = {
        "start": record.get("start"),
        "optimizer": spec["optimizer"]["name"],
        "accumulation": spec["step"]["accumulation"],
    }
    found |= {name: spec["optimizer"].get(name) for name in ("momentum", "schedule", "learning_rate")}
    found |= _others_on_gpu(record)
    found |= {"checkpointing": spec["step"].get("checkpointing"), "attention": spec["step"].get("attention")}
    found |= _rate(spec, seen)
    result = record.get("result") or {}
    found |= {column: result.get(name) for column, name in IDENTICAL.items()}
    if row.get("treatment", "baseline") != "baseline":
        found["changes_arithmetic"] = _changes_arithmetic(record)
    if not seen:
        return found
    optimizer = str(seen.get("optimizer_class", "")).lower()
    right_device = str(seen.get("device", "")).startswith(spec["device"]["type"])
    whole_step = row.get("mode", "step") == "step"
    return found | {
        "observed_precision": _precision(seen),
        "matmul_precision": seen.get("product_precision"),
        "observed_optimizer": OPTIMIZER_CLASSES.get(optimizer, optimizer) or None,
        "observed_accumulation": seen.get("accumulation") if whole_step else None,
        "observed_threads": seen.get("threads") if spec["device"]["type"] == "cpu" else None,
        "observed_device": row["device"] if right_device else seen.get("device"),
        "observed_attention": seen.get("attention_backend"),
        "observed_execution": _execution(seen),
        **{f"observed_{name}": seen.get(name) for name in SHAPED},
        "micro_batch_size": spec["step"]["batch_size"] / spec["step"]["accumulation"],
    }


def _others_on_gpu(record: dict[str, Any]) -> dict[str, Any]:
    """The most processes of others that were on the GPU before or after, and the most memory that they held."""
    machine = (record.get("result") or {}).get("machine") or {}
    looks = [state["gpu"] for state in (machine.get("before"), machine.get("after")) if state and state.get("gpu")]
    return {
        column: max((look[name] for look in looks if look.get(name) is not None), default=None)
        for column, name in (("gpu_others", "other_processes"), ("gpu_others_bytes", "other_memory_bytes"))
        if looks
    }


def _rate(spec: dict[str, Any], seen: dict[str, Any]) -> dict[str, float]:
    """The learning rate of the last step as the schedule has it, and the one most unlike it that the optimizer held."""
    held, index = seen.get("learning_rates"), seen.get("rate_index")
    if not held or index is None:
        return {}
    asked = float(rates_at(from_json(OptimizerSpec, spec["optimizer"]), np.array([index]))[0])
    return {"last_rate": asked, "observed_last_rate": max(held, key=lambda rate: abs(rate - asked))}


def _execution(seen: dict[str, Any]) -> str | None:
    """How the step ran, as far as the record counts graphs."""
    if seen.get("captured"):
        return "graphed"
    return None if "n_graphs" not in seen else "compiled" if seen["n_graphs"] else "eager"


def _precision(seen: dict[str, Any]) -> str | None:
    """The precision that the dtype of a linear output and the setting of products amount to."""
    dtype = str(seen.get("linear_output_dtype", "")).removeprefix("torch.")
    if dtype == "float32":
        return "tf32" if seen.get("product_precision") == "tf32" else "fp32"
    return {"float16": "fp16", "bfloat16": "bf16"}.get(dtype)


def _changes_arithmetic(record: dict[str, Any]) -> bool:
    """Whether the run's treatment names anything beyond what leaves arithmetic as it was."""
    spec = record["spec"]
    step = spec["step"]
    special = step.get("checkpointing") or step.get("execution") != "eager" or step.get("attention", "auto") != "auto"
    plain = step["precision"] == "fp32" and step["accumulation"] == 1
    return not (special and plain)


def _samples(cells: pd.DataFrame, records: dict[str, dict[str, Any]]) -> pd.DataFrame:
    """One row a warm sample, in order."""
    rows: list[dict[str, Any]] = []
    for cell in each(cells) if "record" in cells.columns else ():
        label = f"{cell['device']}/{cell['cell']}"
        result = (records.get(str(cell["record"])) or {}).get("result") or {}
        rows += [
            {"label": label, "device": cell["device"], "sample_s": found} for found in result.get("samples_s") or ()
        ]
    return pd.DataFrame(rows, columns=["label", "device", "sample_s"])


def _roles(selection: dict[str, Any], cells: pd.DataFrame) -> pd.DataFrame:
    """One row a role, with the quantity that the models are matched on and whether the grid reaches them."""
    rows = []
    for role, chosen in (selection.get("roles") or {}).items():
        if role == "largest":  # matched with none
            continue
        shape, counts = chosen["shape"], chosen["params"]
        inside = all(
            cells[column].min() <= shape[column] <= cells[column].max()
            for column in ("n_layer", "n_embd")
            if len(cells)
        )
        rows.append(
            {
                "role": role,
                "label": role,
                "matched_on": QUANTITIES.get(selection.get("quantity", ""), selection.get("quantity")),
                "in_grid": "yes" if inside and len(cells) else "no",
                "n_params": counts["total"],
                "n_params_non_embedding": counts["non_embedding"],
                "flops_per_token": chosen["flops_per_token"],
                **{column: shape[column] for column in ("n_layer", "n_head", "n_embd")},
                **_over_budget(selection, role),
            }
        )
    return pd.DataFrame(rows)


def _over_budget(selection: dict[str, Any], role: str) -> dict[str, Any]:
    """What an adopted model takes beyond this study's budgets, gravest first."""
    over = sorted(
        (one for one in selection.get("over_budget", ()) if one["role"] == role), key=lambda one: -one["ratio"]
    )
    return {"over_budget": "; ".join(one["text"] for one in over), "over_ratio": over[0]["ratio"]} if over else {}
