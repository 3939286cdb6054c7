"""Compares predictions of a training step's peak memory with measurements on random shapes.

    python benchmarks/prediction_memory.py [--device cpu|cuda] [--execution eager ...] [--shapes 40] [--seed 1]
                                           [--at-least MIB] [--json FILE]

Each shape is drawn with an architecture, a precision, an optimizer, dropout, checkpointing and accumulation of its own,
and measured in a process of its own as `measure_memory` does. Predicted by 16 bytes a parameter; by these and the
activations of Korthikanti et al. 2022 (arXiv 2205.05198, equation 2); by the rule of `accelerate estimate-memory`; and
by Assay's closed form. Then budgets are drawn from half to twice each measured peak, and each formula says what fits.
`--at-least MIB` leaves out shapes that are predicted to take less: what fits is asked where a device is nearly full.

`--json FILE` writes {"figures", "targets", "met", "conditions", "shapes"} after each shape, so that a run that is cut
off leaves what it has.
"""

import argparse
import dataclasses
import itertools
import json
import platform
import random
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # in place of this folder, whose `statistics` is not the standard one

import statistics  # noqa: E402

from benchmarks.options import parser_of  # noqa: E402
from benchmarks.prediction_shapes import draw  # noqa: E402
from workflow_scripts.lib.counts import count_parameters  # noqa: E402
from workflow_scripts.lib.devices import detect_devices  # noqa: E402
from workflow_scripts.lib.fits import MARGIN  # noqa: E402
from workflow_scripts.lib.gpu import Gpu  # noqa: E402
from workflow_scripts.lib.isolation import run_isolated  # noqa: E402
from workflow_scripts.lib.memory_model import MemoryEstimate, estimate_memory  # noqa: E402
from workflow_scripts.lib.provenance import commit  # noqa: E402
from workflow_scripts.lib.specs import (  # noqa: E402
    DeviceSpec,
    ModelShape,
    OptimizerSpec,
    StepSpec,
    from_json,
    to_json,
)

LABELS = {
    "16n": "16 bytes a parameter",
    "16n_korthikanti": "... and Korthikanti's activations",
    "accelerate": "accelerate's rule",
    "assay": "Assay",
}
TARGETS = {
    "memory.assay.median_error": 0.01,
    "memory.assay.largest_error": 0.05,
    "memory.assay.fit_wrong": 0.01,
    "memory.assay.fit_unsafe": 0.0,
}
OPTIMIZERS = (("adamw", 0.0), ("adamw", 0.0), ("sgd", 0.0), ("sgd", 0.9), ("adafactor", 0.0), ("muon", 0.95))
PRECISIONS = {"cpu": ("fp32", "fp32", "bf16", "fp16"), "cuda": ("fp32", "tf32", "bf16", "bf16", "fp16")}
DRAWS = 50  # at most, for each shape that is taken
BUDGETS = 200  # for each shape, log-uniform from half to twice its peak
TIMED_TOKENS, TIMED_BATCHES = 200_000, 100  # of `prediction_sides`: what its steps hold on a device besides
MEASURE = "benchmarks.prediction_memory_side:measure_memory"


def main() -> int:
    """Measures and compares; returns 1 if nothing could be measured, else 0, whether or not targets were met."""
    options = _parse()
    index = 0 if options.device == "cuda" else None
    device = DeviceSpec(id=options.device, type=options.device, threads=options.threads, index=index)
    measured: list[dict[str, Any]] = []
    report: dict[str, Any] = {"figures": {}}
    drawn = configurations(DRAWS * options.shapes, options.seed, options.device, options.execution)
    enough = (one for one in drawn if estimate_memory(*one, options.device).peak_bytes >= options.at_least * 2**20)
    for shape, step, optimizer in itertools.islice(enough, options.shapes):
        asked = {"shape": to_json(shape), "step": to_json(step), "optimizer": to_json(optimizer)}
        outcome = run_isolated(MEASURE, asked | {"device": to_json(device)}, device=device, timeout_s=options.timeout)
        found = outcome.result if outcome.status == "ok" else {"failed": f"{outcome.status}: {outcome.reason}"}
        measured.append(asked | (found or {}))
        report = summarise(measured, device, options)
        _tell(measured[-1], device)
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print_table(report)
    return 0 if report["figures"] else 1


def configurations(
    n: int, seed: int, device: str, executions: Sequence[str]
) -> Iterator[tuple[ModelShape, StepSpec, OptimizerSpec]]:
    """Draws shapes, each with all that changes the memory of its step."""
    drawing = random.Random(seed)
    for shape, step in draw(n, 3000 + seed, device, "fp32", "eager"):
        name, momentum = drawing.choice(OPTIMIZERS)
        accumulation = drawing.choice([count for count in (1, 1, 2, 4) if step.batch_size % count == 0])
        execution = drawing.choice(list(executions))
        if execution == "graphed" and name not in ("adamw", "sgd"):
            name, momentum = "adamw", 0.0
        step = dataclasses.replace(
            step,
            precision=drawing.choice(PRECISIONS[device]),
            execution=execution,
            accumulation=accumulation,
            checkpointing=drawing.random() < 0.25,
            attention=drawing.choice(("auto", "auto", "auto", "math")),
        )
        optimizer = OptimizerSpec(
            name=name, learning_rate=1e-4, min_learning_rate=1e-4, warmup_steps=0, decay_steps=1, schedule="constant",
            weight_decay=0.1, beta1=0.9, beta2=0.95, momentum=momentum, grad_clip=1.0,
        )  # fmt: skip
        yield dataclasses.replace(shape, dropout=drawing.choice((0.0, 0.0, 0.1))), step, optimizer


def compare_memory(measured: list[dict[str, Any]], optimizer: OptimizerSpec, device: DeviceSpec) -> dict[str, Any]:
    """Compares the peaks of timed steps: {"figures", "targets", "met"}, empty where nothing counted them.

    Args:
        measured: of each shape `shape` and `step` (as JSON) and, where it was counted, `peak_allocated_bytes`.
        optimizer: of all of them.
        device: where they ran.
    """
    cases = []
    for one in measured:
        if one.get("peak_allocated_bytes"):
            data = 0 if device.type == "cpu" else 4 * TIMED_TOKENS + 8 * TIMED_BATCHES * one["step"]["batch_size"]
            cases.append({**one, "optimizer": to_json(optimizer), "data_bytes": data})
    return judged(cases, device)


def judged(cases: Sequence[dict[str, Any]], device: DeviceSpec) -> dict[str, Any]:
    """Errors and fit decisions of all formulas."""
    if not cases:
        return {"figures": {}, "targets": {}, "met": {}}
    peaks = [case["peak_allocated_bytes"] for case in cases]
    figures: dict[str, float] = {"memory.n_shapes": len(cases)}
    predictions = [predict(case, device) for case in cases]
    for name in LABELS:
        errors = [abs(said[name] / peak - 1) for said, peak in zip(predictions, peaks, strict=True)]
        figures[f"memory.{name}.median_error"] = statistics.median(errors)
        figures[f"memory.{name}.mean_error"] = statistics.fmean(errors)
        figures[f"memory.{name}.largest_error"] = max(errors)
        factor = MARGIN if name == "assay" else 1.0
        decided = fit_decisions([factor * said[name] for said in predictions], peaks)
        figures[f"memory.{name}.fit_wrong"], figures[f"memory.{name}.fit_unsafe"] = decided
    return {
        "figures": figures,
        "targets": TARGETS,
        "met": {name: figures[name] <= bound for name, bound in TARGETS.items()},
    }


def fit_decisions(predicted: Sequence[float], peaks: Sequence[int], seed: int = 0) -> tuple[float, float]:
    """Shares of budgets at which a prediction decides wrongly, and at which it says "fits" where it does not."""
    drawing, wrong, unsafe = random.Random(seed), 0, 0
    for said, peak in zip(predicted, peaks, strict=True):
        for _ in range(BUDGETS):
            budget = peak * 2 ** drawing.uniform(-1, 1)
            wrong += (said <= budget) != (peak <= budget)
            unsafe += said <= budget < peak
    n = BUDGETS * len(peaks)
    return wrong / n, unsafe / n


def predict(case: dict[str, Any], device: DeviceSpec) -> dict[str, float]:
    """What each formula says of the peak, in bytes."""
    shape, step = from_json(ModelShape, case["shape"]), from_json(StepSpec, case["step"])
    n_params = count_parameters(shape).total
    half = step.precision in ("bf16", "fp16")
    micro, T, d = step.batch_size // step.accumulation, shape.sequence_length, shape.n_embd
    # Equation 2 counts bytes of 16-bit training; with full recomputation (section 4.3) 2 s b h of each layer stay.
    layer = 2 * T * micro * d if step.checkpointing else T * micro * d * (34 + 5 * shape.n_head * T / d)
    activations = shape.n_layer * layer * (1 if half else 2)
    return {
        "16n": 16 * n_params,
        "16n_korthikanti": 16 * n_params + activations,
        # accelerate.commands.estimate: the largest of model, gradients, optimizer and step; mixed precision counts
        # model 4, gradients 6 and optimizer 8 bytes a parameter, full precision 16 in the step.
        "accelerate": (8 if half else 16) * n_params,
        "assay": assay(case, device).peak_bytes,
    }


def assay(case: dict[str, Any], device: DeviceSpec) -> MemoryEstimate:
    """The closed form, with what the measuring process held on the device besides."""
    return estimate_memory(
        from_json(ModelShape, case["shape"]),
        from_json(StepSpec, case["step"]),
        from_json(OptimizerSpec, case["optimizer"]),
        device.type,
        resident_bytes=case["data_bytes"],
        gpu=_gpu(device),
        threads=device.threads,
    )


def _gpu(device: DeviceSpec) -> Gpu:
    found = (one for one in detect_devices() if (one["type"], one["index"]) == (device.type, device.index))
    return Gpu.of(next(found, {}))


def summarise(measured: list[dict[str, Any]], device: DeviceSpec, options: argparse.Namespace) -> dict[str, Any]:
    """Turns what was measured so far into figures, targets and what was met."""
    cases = [one for one in measured if "failed" not in one]
    reserved = [c["peak_reserved_bytes"] / c["peak_allocated_bytes"] for c in cases if c["peak_reserved_bytes"]]
    report = judged(cases, device)
    if reserved:
        report["figures"] |= {
            "memory.reserved_over_allocated.median": statistics.median(reserved),
            "memory.reserved_over_allocated.largest": max(reserved),
        }
    return {
        **report,
        "conditions": {
            "device": device.type, "gpu": _gpu(device).name, "executions": options.execution,
            "seed": options.seed, "at_least_mib": options.at_least,
            "torch": version("torch"), "commit": commit(), "platform": platform.platform(),
            "accelerate": "its rule, computed here", "failed": len(measured) - len(cases), "threads": device.threads,
        },
        "shapes": [one | ({} if "failed" in one else {"predicted": _said(one, device)}) for one in measured],
    }  # fmt: skip


def _said(case: dict[str, Any], device: DeviceSpec) -> dict[str, Any]:
    estimate = assay(case, device)
    return {"peak_bytes": estimate.peak_bytes, "moments": estimate.moments, "at_peak": estimate.at_peak}


def print_table(report: dict[str, Any]) -> None:
    """Prints the errors and the decisions of all formulas."""
    figures = report["figures"]
    if not figures:
        print("no peak could be measured")
        return
    print(f"Peak allocated memory, {figures['memory.n_shapes']} shapes; budgets from half to twice the peak")
    print(f"{'':36}{'median':>9}{'mean':>9}{'largest':>9}{'wrong':>9}{'unsafe':>9}")
    for name, label in LABELS.items():
        kinds = ("median_error", "mean_error", "largest_error", "fit_wrong", "fit_unsafe")
        print(f"{label:36}" + "".join(f"{figures[f'memory.{name}.{kind}']:>9.2%}" for kind in kinds))
    for name, bound in report["targets"].items():
        print(f"{name}: {figures[name]:.4g}, goal {bound:g}: {'met' if report['met'][name] else 'missed'}")


def _tell(one: dict[str, Any], device: DeviceSpec) -> None:
    shape, step = one["shape"], one["step"]
    what = f"{shape['architecture']} {shape['n_layer']}×{shape['n_embd']} V{shape['vocab_size']} "
    what += f"{step['batch_size']}×{shape['sequence_length']} {step['precision']} {step['execution']}"
    if "failed" in one:
        print(f"{what}: {one['failed']}", file=sys.stderr, flush=True)
        return
    error = assay(one, device).peak_bytes / one["peak_allocated_bytes"] - 1
    print(f"{what}: {one['peak_allocated_bytes'] / 2**20:,.1f} MiB, {error:+.2%}", file=sys.stderr, flush=True)


def _parse() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--execution", nargs="+", choices=("eager", "compiled", "graphed"), default=["eager"])
    parser.add_argument("--shapes", type=int, default=40, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-least", type=float, default=0.0, help="MiB that a shape is predicted to take")
    parser.add_argument("--timeout", type=float, default=300.0, help="of one shape, in seconds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
