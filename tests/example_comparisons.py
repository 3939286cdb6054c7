"""What is derived from the example study's trainings: devices beside each other, slow steps, optimizers, claims."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from tests import example_tables
from workflow_scripts.lib import convergence, csv_tables, device_comparison, optimizer_sweep, own_claims, spikes
from workflow_scripts.lib import published_beside as beside
from workflow_scripts.lib.audit.claims import Table, Verdict
from workflow_scripts.lib.evidence import Evidence

CLAIMS = [
    {"quote": "a consistent ~20x speedup", "kind": "consistent", "ours": "speed_up_is_consistent"},
    {"quote": "the wide model converges <more> quickly", "kind": "evidence", "ours": "wide_is_early_and_high"},
    {"quote": "nothing here speaks of this", "kind": "equation"},
]
VERDICTS = [Verdict("does not hold", "16× to 20×"), Verdict("cannot be said", "no loss"), Verdict("holds", "8 GB")]
PAIRING = beside.Pairing(
    published="sizes", ours="cells", title="Forward and backward by size", where={"precision": "fp32"},
    join={"model": "model"}, words={"model": {"Wide": "wide"}}, axes=("batch_size",),
    quantities=(
        beside.Quantity(title="mean", published="step_time_mean_s", ours="step_time_s", unit="s"),
        beside.Quantity(title="execution", published="execution", ours="execution", unit="text"),
    ),
    conditions=(
        beside.Condition(title="device", published="device", ours="device"),
        beside.Condition(title="processes", published="isolation", here="one a cell"),
    ),
    cannot={"warm-up": "the document took its steps from the first on."},
)  # fmt: skip
PRINTED = pd.DataFrame([
    {"model": "Wide", "step_time_mean_s": 0.3, "execution": "eager", "device": "a laptop", "status": "ok"},
    {"model": "huge", "step_time_mean_s": None, "execution": None, "device": "a laptop", "status": "oom"},
])  # fmt: skip


def compare(prices: dict[str, float] | None = None, **tables: pd.DataFrame) -> pd.DataFrame:
    """Rows of device_comparison.csv, without a cost model."""
    given = {name: getattr(example_tables, name)(2) for name in ("runs", "curves", "ceilings", "cells")} | tables
    cells = given.pop("cells")
    rows = device_comparison.compare_devices(
        **given, bound_of=lambda run: device_comparison.bound_by_scaling(run, cells, given["ceilings"]),
        prices=prices or {}, currency="EUR",
    )  # fmt: skip
    return pd.DataFrame(rows, columns=device_comparison.COLUMNS)


def spike_record(**result: object) -> dict:
    """A record of a run, as far as its slow steps need it."""
    run = {"device": {"id": "cpu"}, "id": "wide-s1", "name": "wide", "treatment": "baseline", "seed": 1}
    return {"spec": run, "result": {"eval_s": 1.0, "checkpoint_s": 0.0, **result}}


def metrics(slow: dict[int, float], n: int = 200, every: int = 50) -> pd.DataFrame:
    """A history of steps of about 0.1 s, those of `slow` so many times as long, evaluated after `every` steps."""
    times = 0.1 * np.random.default_rng(1).normal(1, 0.01, n)
    for step, times_as_long in slow.items():
        times[step - 1] *= times_as_long
    steps = np.arange(1, n + 1)
    return pd.DataFrame({
        "step": steps, "step_time_s": times, "val_loss": np.where(steps % every == 0, 2.0, np.nan),
    })  # fmt: skip


def sweep(diverged: str = "", n_seeds: int = 2) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs and curves of two optimizers over three learning rates: AdamW best inside, SGD best at its highest rate."""
    runs, curves = [], []
    rates = {"adamw": (1e-3, 2e-3, 4e-3), "sgd": (0.05, 0.1, 0.2)}
    best = {"adamw": 1.5, "sgd": 1.9}
    for optimizer, tried in rates.items():
        for place, rate in enumerate(tried):
            level = "baseline" if (optimizer, place) == ("adamw", 1) else f"{optimizer}_{place}"
            for seed in range(1, n_seeds + 1):
                run = f"wide-{level}-s{seed}"
                off = 0.1 * (abs(place - 1) if optimizer == "adamw" else 2 - place)
                runs.append({
                    "device": "cpu", "run": run, "name": "wide", "treatment": level, "seed": seed, "momentum": 0.9,
                    "levels": json.dumps({"optimizer": level}), "optimizer": optimizer, "learning_rate": rate,
                    "status": "diverged" if level == diverged else "ok", **dict.fromkeys(optimizer_sweep.WORK, 1),
                })  # fmt: skip
                pace = 0.05 if optimizer == "adamw" else 0.04
                for step in (100, 200, 300):
                    loss = best[optimizer] + off + 50 / step + 0.01 * seed
                    curves.append({
                        "device": "cpu", "run": run, "name": "wide", "treatment": level, "seed": seed, "step": step,
                        "tokens": step * 1024, "elapsed_s": step * pace, "val_loss": loss,
                    })  # fmt: skip
    return pd.DataFrame(runs), pd.DataFrame(curves)


def write(paths: dict[str, Path]) -> dict[str, Path]:
    """Writes the tables beside those of `example_tables.write_study`; devices are compared as far as it has them."""
    used = ("runs", "curves", "ceilings", "cells", "processes", "timers")
    read = {name: csv_tables.read(paths[name]) for name in used}
    given = {name: read[name] for name in ("runs", "curves", "ceilings", "cells")}
    tables = {"device_comparison": compare(prices={"gpu": 2.5}, **given)}
    tables["convergence"] = pd.DataFrame(convergence.judge_convergence(read["curves"]), columns=convergence.COLUMNS)
    found = spikes.spike_rows(spike_record(), metrics({1: 9, 51: 2, 120: 3, 121: 3}), "results/example/x/run.json")
    tables["spikes"] = pd.DataFrame(found if len(read["curves"]) else [], columns=spikes.COLUMNS)
    swept = optimizer_sweep.sweep_optimizers(*sweep()) if len(read["curves"]) else []
    tables["optimizer_sweep"] = pd.DataFrame(swept, columns=optimizer_sweep.COLUMNS)
    checked = own_claims.check_claims(CLAIMS, VERDICTS, Evidence(read | tables))
    tables["checked_claims"] = pd.DataFrame(checked, columns=own_claims.COLUMNS)
    rows, conditions = beside.set_beside(PAIRING, Table(PRINTED, pd.DataFrame()), read, {"cpu": "a CPU"})
    tables["published"] = pd.DataFrame(rows, columns=beside.BESIDE_COLUMNS)
    tables["published_conditions"] = pd.DataFrame(conditions, columns=beside.CONDITION_COLUMNS)
    written = {}
    for name, table in tables.items():
        written[name] = paths["runs"].parent / f"{name}.csv"
        csv_tables.write(table, written[name])
    return written
