"""Records of probes as measuring leaves them, made up, and the tables that the pipeline makes of them."""

import json
from pathlib import Path

import pandas as pd

from workflow_scripts import collect_cold_steps, collect_probes
from workflow_scripts.lib.records import RECORD_VERSION

GPU = {"id": "h100", "type": "cuda", "threads": 2, "index": 0}
MODEL = {"architecture": "gpt2", "n_layer": 3, "n_head": 2, "n_embd": 32, "n_inner": 64, "vocab_size": 90,
         "sequence_length": 16, "dropout": 0.0, "bias": True}  # fmt: skip
STEP = {"batch_size": 4, "precision": "fp32", "execution": "eager", "accumulation": 1, "attention": "math",
        "checkpointing": False}  # fmt: skip
GIB = 2**30


def record(kind: str, result: dict | None, status: str = "ok", reason: str = "", **asked: object) -> dict:
    spec = {"id": kind, "kind": kind, "device": GPU, **asked}
    return {"record_version": RECORD_VERSION, "kind": "probe", "id": kind, "status": status, "reason": reason,
            "spec": spec, "result": result}  # fmt: skip


def attention() -> dict:
    rows = []
    for backend, matrices in (("math", 6.0), ("flash", 0.0)):
        for length in (4096, 8192, 16384):
            row = {"batch_size": 8, "n_head": 1, "head_size": 64, "sequence_length": length, "precision": "fp32",
                   "backend": backend, "compiled": False}  # fmt: skip
            scores = 8 * length**2 * 4
            peak = round(matrices * scores + 8 * 8 * length * 64 * 4)
            if peak > 40 * GIB:
                row |= {"status": "oom", "reason": "CUDA out of memory", "predicted_bytes": peak}
            else:
                row |= {"status": "ok", "reason": "", "forward_s": [length**2 * 1e-10] * 6, "first_s": 0.2,
                        "backward_s": [length**2 * 2.5e-10] * 6, "peak_bytes": peak, "predicted_bytes": peak,
                        "before_backward_bytes": peak - scores if matrices else peak // 2,
                        "memory_method": "counters"}  # fmt: skip
                row["forward_s"] = [t * (2 if matrices else 1) for t in row["forward_s"]]
            rows.append(row)
    ended = [{"status": "unavailable", "reason": "no kernel", "backends": ["cudnn"], "compiled": [False]}]
    return record("attention", {"capacity_bytes": 40 * GIB, "rows": rows, "ended": ended})


def accumulation() -> dict:
    rows = [
        {"sum_format": sums, "term_format": terms, "upcast": upcast, "terms": n, "value": n * 0.01 * (1 + off),
         "exact": n * 0.01, "error": n * 0.01 * off, "input_error": n * 0.01 * share,
         "sum_error": n * 0.01 * (off - share)}
        for sums, terms, upcast, off, share in (
            ("fp32", "fp32", False, 1.3e-5, 0.0), ("fp16", "fp16", False, -4.7e-3, 2e-4),
            ("fp32", "fp16", False, 2e-4, 2e-4), ("fp32", "fp16", True, 2e-4, 2e-4),
        )
        for n in (500, 1000)
    ]  # fmt: skip
    return record("accumulation", {"rows": rows})


def autocast() -> dict:
    points = ("parameters", "first linear", "normalisation", "residual stream", "logits", "loss", "gradients")
    rows = [
        {"precision": precision, "status": "ok", "reason": "", "products": "ieee",
         "dtypes": {point: low if point in ("first linear", "logits") else "float32" for point in points},
         "loss": [4.0 + off, 3.5 + 2 * off], "loss_fp32": [4.0, 3.5], "gradient_distance": [off, None],
         "gradient_cosine": [1.0, None]}
        for precision, low, off in (("fp32", "float32", 0.0), ("bf16", "bfloat16", 0.004))
    ]  # fmt: skip
    rows.append({"precision": "tf32", "status": "unavailable", "reason": "not here"})
    return record("autocast", {"rows": rows}, name="small")


def clocks() -> dict:
    rows = [
        {"sequence_length": length, "mode": "forward", "status": "ok", "reason": "", "host_s": [0.004] * 5,
         "wall_s": [max(0.0042, length * 2e-5)] * 5, "device_s": length * 1.95e-5, "n_kernels": 300}
        for length in (64, 128, 1024)
    ]  # fmt: skip
    return record("clocks", {"timeline": "kernels", "rows": rows}, name="small", step=STEP)


def operators(n_products: float = 13.0) -> dict:
    """Three layers: 3 × 4 + 1 products of linear maps forward and twice as many backward."""
    row = {"status": "ok", "reason": "", "self_memory_bytes": 0.0}
    rows = []
    for mode, backward in (("forward", False), ("step", True)):
        own = [("aten::addmm", "matrix product", "forward", n_products, 0.4, 1e9),
               ("aten::bmm", "matrix product", "forward", 6.0, 0.1, 1e8),
               ("aten::_softmax", "softmax", "forward", 3.0, 0.1, None)]  # fmt: skip
        if backward:
            own += [("aten::mm", "matrix product", "backward", 2 * n_products, 0.1, 2e9),
                    ("aten::bmm", "matrix product", "backward", 12.0, 0.1, 2e8)]  # fmt: skip
        idle = 1.0 - sum(item[4] for item in own)
        rows += [
            {**row, "mode": mode, "operator": name, "category": category, "phase": phase, "calls_per_step": calls,
             "self_time_s": share * 0.01, "share": share, "flops": flops}
            for name, category, phase, calls, share, flops in
            [*own, ("idle or untraced", "idle or untraced", "", None, idle, None)]
        ]  # fmt: skip
    asked = {"name": "small", "model": MODEL, "step": STEP, "modes": ["forward", "step"]}
    return record("operators", {"rows": rows, "observed": {"attention_backend": "math"}}, **asked)


def cell(id: str, first_s: float, step_s: float, execution: str = "eager", n: int = 30) -> dict:
    samples = [first_s, step_s * 1.5, *[step_s] * (n - 2)]
    spec = {"id": id, "name": "small", "device": GPU, "mode": "step", "step": STEP | {"execution": execution}}
    result = {"cold_s": samples[:2], "samples_s": samples[2:], "block_size": 1}
    return {"record_version": RECORD_VERSION, "kind": "cell", "id": id, "status": "ok", "reason": "", "spec": spec,
            "result": result}  # fmt: skip


def cells() -> pd.DataFrame:
    common = {"device": "h100", "model": "small", "batch_size": 4, "sequence_length": 16, "precision": "fp32",
              "mode": "step", "process": 1, "attention": "auto", "status": "ok", "record": None}  # fmt: skip
    return pd.DataFrame([
        common | {"execution": "eager", "cell": "a", "step_time_s": 0.010, "first_step_s": 0.11, "compile_s": None},
        common | {"execution": "compiled", "cell": "b", "step_time_s": 0.006, "first_step_s": 20.006, "compile_s": 9.0},
        common | {"execution": "graphed", "cell": "c", "step_time_s": 0.012, "first_step_s": 3.0, "compile_s": 2.0},
    ])  # fmt: skip


def write(folder: Path, *records: dict) -> dict[str, Path]:
    """Writes the tables of these records, or of one of each kind, as the scripts do; gives them by name."""
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    made = records or (attention(), accumulation(), autocast(), clocks(), operators())
    paths = []
    for number, value in enumerate(made):
        paths.append(folder / f"probe{number}.json")
        paths[-1].write_text(json.dumps(value))
    ceilings = folder / "probe_ceilings.csv"
    pd.DataFrame([
        {"device": "h100", "quantity": "matrix_product", "precision": "fp32", "value": 4e13, "unit": "FLOP/s"},
        {"device": "h100", "quantity": "copy", "precision": None, "value": 2e12, "unit": "bytes/s"},
    ]).to_csv(ceilings, index=False)  # fmt: skip
    names = [*collect_probes.TABLES, "warm_up", "executions"]
    tables = {name: folder / "tables" / f"{name}.csv" for name in names}
    own = {name: path for name, path in tables.items() if name in collect_probes.TABLES}
    collect_probes.main(probes=paths, recordings=[], ceilings=ceilings, **own, spec={})
    timed = folder / "timed.json"
    timed.write_text(json.dumps(cell("a", 0.11, 0.010)))
    cells_table = folder / "cells_of_probes.csv"
    cells().to_csv(cells_table, index=False)
    collect_cold_steps.main(
        cells=[timed], recordings=[], cells_table=cells_table, warm_up=tables["warm_up"],
        executions=tables["executions"], spec={},
    )  # fmt: skip
    for path in tables.values():  # so that an example is the same wherever it is made
        path.write_text(path.read_text().replace(folder.as_posix(), "results/example"))
    return tables
