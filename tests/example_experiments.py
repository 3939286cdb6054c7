"""Runs of a made-up experiment with known effects: four sizes, five optimizations, seeds; and for nothing else."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd

from workflow_scripts.lib.tables import CURVE_COLUMNS, RUN_COLUMNS

# Factor, level: what each multiplies: time of a step, memory, loss above the floor; tokens a step; speed of learning.
LEVELS = {
    "size": {
        "context_x2": (1.9, 1.7, 0.96, 2, 1.0),
        "layers_x2": (1.8, 1.65, 0.92, 1, 1.1),
        "embeddings_x2": (2.3, 1.8, 0.9, 1, 1.2),
    },
    "optimization": {
        "sgd": (0.97, 0.93, 2.0, 1, 0.15),
        "bf16": (0.65, 0.62, 1.0, 1, 1.0),
        "quarter_batch": (0.42, 0.35, 1.15, 0.25, 0.6),
        "accumulation_4": (1.08, 0.31, 1.0, 1, 1.0),
        "equal": (1.0, 1.0, 1.0, 1, 1.0),
    },
}
TOGETHER = {("layers_x2", "bf16"): (0.9, 1.0, 1.0), ("embeddings_x2", "bf16"): (0.86, 1.04, 1.0)}
NOISE = (0.004, 0.0, 0.006)
N_STEPS, EVERY = 400, 20


def runs_and_curves(n_seeds: int = 3, device: str = "cpu", name: str = "default") -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of runs.csv and curves.csv: every size with every optimization, with `n_seeds` seeds."""
    random = np.random.default_rng(5)
    runs, curves = [], []
    for size in ("baseline", *LEVELS["size"]):
        for optimization in ("baseline", *LEVELS["optimization"]):
            levels = {"size": size, "optimization": optimization}
            treatment = "+".join(level for level in levels.values() if level != "baseline") or "baseline"
            factors = [LEVELS[factor][level] for factor, level in levels.items() if level != "baseline"]
            time, memory, loss, tokens, speed = (math.prod(values) for values in zip(*factors, (1,) * 5, strict=True))
            extra = TOGETHER.get((size, optimization), (1, 1, 1))
            for seed in range(1, n_seeds + 1):
                drawn = np.exp(random.normal(0, NOISE))
                step_time = 0.02 * time * extra[0] * drawn[0]
                identity = {
                    "device": device, "run": f"{name}-{treatment}-s{seed}", "name": name, "treatment": treatment,
                    "seed": seed,
                }  # fmt: skip
                steps = np.arange(EVERY, N_STEPS + 1, EVERY)
                above = 2.4 * np.exp(-steps * speed / 120)
                curve = pd.DataFrame({
                    **identity, "step": steps, "tokens": steps * 4096 * tokens, "elapsed_s": steps * step_time,
                    "loss": np.nan, "step_time_s": step_time, "val_loss": (1.5 * loss + above) * drawn[2],
                })  # fmt: skip
                curve["loss"] = curve.val_loss + random.normal(0, 0.03, len(curve))
                curves.append(curve)
                last = float(curve.val_loss.iloc[-1])
                runs.append({
                    **identity, "levels": json.dumps(levels, sort_keys=True), "status": "ok",
                    "architecture": "gpt2", "n_layer": 4, "n_head": 4, "n_embd": 96,
                    "batch_size": 16, "sequence_length": 64, "precision": "fp32",
                    "execution": "eager", "n_steps": N_STEPS, "n_tokens": N_STEPS * 4096 * tokens,
                    "step_time_s": step_time, "throughput_tokens_per_s": 4096 * tokens / step_time,
                    "train_s": N_STEPS * step_time, "final_val_loss": last,
                    "peak_allocated_bytes": 3e8 * memory * extra[1] * drawn[1],
                    "record": f"results/example/devices/{device}/runs/{identity['run']}/run.json",
                })  # fmt: skip
    table = pd.concat(curves, ignore_index=True)
    return pd.DataFrame(runs).reindex(columns=RUN_COLUMNS), table.reindex(columns=CURVE_COLUMNS)


def write_allocations(folder: Path) -> Path:
    """Writes the record of a probe that counted the allocations of three treatments, one of them in vain."""
    counts = {"baseline": (9_000, 12e6, 40e6), "layers_x2": (14_000, 22e6, 66e6)}
    rows = [
        {"treatment": name, "status": "ok", "reason": "", "allocations": [n, n, n + 2], "bytes": [size] * 3,
         "peak_heap_bytes": peak, "data_bytes": 4e5, "memray": "1.20.0"}
        for name, (n, size, peak) in counts.items()
    ]  # fmt: skip
    rows.append({"treatment": "bf16", "status": "unavailable", "reason": "memray cannot be imported"})
    treated = [{"id": row["treatment"]} for row in rows]
    spec = {"kind": "allocations", "name": "default", "device": {"id": "cpu"}, "treated": treated}
    record = {"record_version": 1, "kind": "probe", "id": "heap", "spec": spec, "result": {"rows": rows}}
    path = folder / "heap.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


def write(folder: Path, n_seeds: int = 3) -> dict[str, Path]:
    """Writes runs.csv, curves.csv and what the analysis makes of them below `folder`, and returns the paths by name."""
    from workflow_scripts import collect_experiments

    runs, curves = runs_and_curves(n_seeds)
    paths = {"runs": folder / "tables" / "runs.csv", "curves": folder / "tables" / "curves.csv"}
    paths["runs"].parent.mkdir(parents=True, exist_ok=True)
    runs.to_csv(paths["runs"], index=False)
    curves.to_csv(paths["curves"], index=False)
    processes = folder / "tables" / "processes_of_experiment.csv"
    pd.DataFrame([{"device": "cpu", "cell": "a", "spread": 0.004}]).to_csv(processes, index=False)
    names = ("outcomes", "treatment_effects", "interactions", "ranks", "pareto", "allocations")
    paths |= {name: folder / "tables" / f"{name}.csv" for name in names}
    collect_experiments.main(
        runs=paths["runs"], curves=paths["curves"], processes=processes, outcomes=paths["outcomes"],
        effects=paths["treatment_effects"], interactions_table=paths["interactions"], ranks_table=paths["ranks"],
        pareto_table=paths["pareto"], probes=[write_allocations(folder)], recordings=[],
        allocations=paths["allocations"], spec={},
    )  # fmt: skip
    return paths
