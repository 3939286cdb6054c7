"""Rows of the example study that come from jobs of their own: operators, memory, timers, repeats, what fits."""

import pandas as pd

from workflow_scripts.lib.fit_table import FIT_COLUMNS, fit_rows
from workflow_scripts.lib.memory_table import MEMORY_COLUMNS
from workflow_scripts.lib.timer_table import TIMER_COLUMNS


def operator_costs() -> pd.DataFrame:
    rows = [("linear", "64×32×128", 5e5, 4e4), ("attention", "1×4×128×32", 8e6, 3e5), ("gelu", "64×128", 0, 7e4)]
    return pd.DataFrame([
        {"device": "cpu", "kind": kind, "precision": "fp32", "direction": direction, "dims": dims, "seconds": 2e-5,
         "host_s": None, "n": 30, "flops": flops, "moved_bytes": moved, "flop_per_s": flops / 2e-5 or None,
         "bytes_per_s": moved / 2e-5}
        for kind, dims, flops, moved in rows for direction in ("forward", "backward")
    ])  # fmt: skip


def memory() -> pd.DataFrame:
    row = dict.fromkeys(MEMORY_COLUMNS) | {
        "device": "cpu", "cell": "wide-b8-t64-fp32", "status": "ok", "peak_allocated_bytes": 41_943_040,
        "predicted_peak_bytes": 41_900_000, "backward_peak_bytes": 41_943_040, "footprint_bytes": 52_428_800,
        "record": "results/example/devices/cpu/memory/wide-b8-t64-fp32.json",
    }  # fmt: skip
    return pd.DataFrame([row])


def timers() -> pd.DataFrame:
    medians = {"assay": 0.02, "blocked_autorange": 0.0204, "adaptive_autorange": 0.0199}
    common = dict.fromkeys(TIMER_COLUMNS) | {"device": "cpu", "cell": "wide-b8-t64-fp32", "status": "ok", "n": 40}
    return pd.DataFrame([
        common | {"timer": timer, "median_s": median, "low_s": 0.98 * median, "high_s": 1.02 * median,
                  "ratio_to_assay": median / medians["assay"], "agree": True}
        for timer, median in medians.items()
    ])  # fmt: skip


def processes() -> pd.DataFrame:
    row = {
        "device": "cpu",
        "cell": "wide-b8-t64-fp32",
        "n_processes": 3,
        "median_s": 0.02,
        "spread": 0.012,
        "cv": 0.006,
    }
    return pd.DataFrame([row])


def fits() -> pd.DataFrame:
    """Rows of fits.csv: a cell that fits, one beyond the border that was tried, one that was left out."""
    device = {"limit_bytes": 2**26, "capped": True, "beyond": {
        "wide-b16-t128-fp32": {"needed_bytes": 70 * 2**20, "tried": True},
        "deep-b16-t128-fp32": {"needed_bytes": 90 * 2**20, "tried": False},
    }}  # fmt: skip
    peaks = {"wide-b8-t64-fp32": 40 * 2**20, "wide-b16-t128-fp32": 69 * 2**20, "deep-b16-t128-fp32": None}
    cells = [
        {
            "device": "cpu", "cell": cell, "status": "ok" if peak else "predicted_oom", "peak_allocated_bytes": peak,
            "predicted_peak_bytes": 41 * 2**20, "memory_method": None,
            "record": f"results/example/devices/cpu/cells/{cell}.json",
        }
        for cell, peak in peaks.items()
    ]  # fmt: skip
    return pd.DataFrame(fit_rows(cells, {"cpu": device}), columns=list(FIT_COLUMNS))
