"""Rows of tables for the audit's rules, built from what a rule looks at."""

from typing import Any

import numpy as np

Rows = list[dict[str, Any]]


def rows(*each: dict[str, Any], **common: Any) -> Rows:
    return [{**common, **one} for one in each]


def column(name: str, *values: Any, **common: Any) -> Rows:
    return [{**common, name: value} for value in values]


def timed(*mean_and_std: tuple[float, float], **common: Any) -> Rows:
    return [{"step_time_mean_s": mean, "step_time_std_s": std, **common} for mean, std in mean_and_std]


def series(samples: Any) -> Rows:
    return [{"label": "cpu/a", "sample_s": float(sample)} for sample in samples]


STEADY = 0.03 + 1e-4 * np.sin(np.arange(40) * 2.4)
SIZES = column("n_params", 1e6, 2e6, tokens_per_step=512)
GRID = [{**size, "step_time_s": time} for size, time in zip(SIZES, (0.1, 0.2), strict=True)]
LONGER = rows({"sequence_length": 256}, {"sequence_length": 1024}, {"sequence_length": 4096}, batch_size=8)


def longer(**columns: tuple[float, ...]) -> Rows:
    return [{**row, **{n: v[i] for n, v in columns.items()}} for i, row in enumerate(LONGER)]


def modes(**times: float) -> Rows:
    return [{"mode": mode, "step_time_s": time} for mode, time in times.items()]


def phases(forward: tuple[float, ...], backward: tuple[float, ...]) -> Rows:
    one, two = longer(step_time_s=forward), longer(step_time_s=backward)
    return [{**row, "mode": "forward"} for row in one] + [{**row, "mode": "backward"} for row in two]


def treated(losses: dict[str, float], **common: Any) -> Rows:
    return [{"model": "a", "treatment": name, "loss": loss, **common} for name, loss in losses.items()]


def grid(found: dict[str, tuple[float, ...]], measure: str = "peak_allocated_bytes", **common: Any) -> Rows:
    """Rows treatment × three models, with one measure."""
    return [
        {"model": model, "treatment": treatment, measure: value, **common}
        for treatment, values in found.items()
        for model, value in zip("abc", values, strict=True)
    ]


def optimizers(adam: float, sgd: float) -> Rows:
    common = {"model": "a", "n_params": 1e6}
    return [
        {**common, "treatment": "baseline", "optimizer": "adamw", "peak_allocated_bytes": adam},
        {**common, "treatment": "sgd", "optimizer": "sgd", "peak_allocated_bytes": sgd},
    ]


def micro(split: tuple[float, ...], whole: tuple[float, ...]) -> Rows:
    return grid({"accumulation": split}, micro_batch_size=16, accumulation=4) + grid(
        {"small batch": whole}, micro_batch_size=16, accumulation=1
    )
