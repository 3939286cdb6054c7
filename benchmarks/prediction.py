"""Compares predictions of step time, and of memory, with measurements on random shapes drawn after fitting.

    python benchmarks/prediction.py [--device cpu|cuda] [--execution eager] [--precision fp32] [--json FILE]

The device is calibrated, a few shapes are measured to fit on, and others, drawn with another seed, are predicted and
measured: by 6N over the datasheet, by PaLM's FLOPs over the measured product, by the roofline of each operator, and by
Assay from three of the known shapes and from all of them. Every shape is visited several times, in rounds over all of
them, each round in another order, in several processes. Its time is the median of its visits, each divided by how slow
its round was for all shapes, because a machine that others use, too, is slower in some minutes than in others. How far
every second visit of a shape differs from the others is shown as well: no prediction can be expected to agree with a
measurement better than another measurement does. With more than one round all shapes stay alive, which saves their
building, and is for GPUs: a processor's heap is then cut into pieces, which makes some steps much slower. Where
building takes most of the time, because steps are compiled, several processes may each build a share of them, before
one step after the other is timed:

    TORCHINDUCTOR_COMPILE_THREADS=2 python benchmarks/prediction.py --device cuda --precision bf16
        --execution compiled --processes 1 --rounds 20 --seconds 0.15 --builders 16

Peak memory is compared, too, where one step at a time is alive and not captured; `prediction_memory.py` measures each
in a process of its own.

`--json FILE` writes {"figures", "targets", "met", "conditions", "shapes"} after each process and when interrupted.
What was not measured is not in it.
"""

import argparse
import csv
import json
import os
import platform
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # in place of this folder, whose `statistics` is not the standard one

from benchmarks.options import parser_of  # noqa: E402
from benchmarks.prediction_memory import compare_memory  # noqa: E402
from benchmarks.prediction_rivals import TARGETS, compare, figures_of, within_interval  # noqa: E402
from benchmarks.prediction_shapes import draw  # noqa: E402
from benchmarks.rounds import steady_times  # noqa: E402
from workflow_scripts.lib.cost_model import Case, TimeModel  # noqa: E402
from workflow_scripts.lib.isolation import run_isolated  # noqa: E402
from workflow_scripts.lib.operator_rates import read_rates  # noqa: E402
from workflow_scripts.lib.outcome import Outcome  # noqa: E402
from workflow_scripts.lib.specs import (  # noqa: E402
    DeviceSpec,
    MeasureSpec,
    ModelShape,
    OptimizerSpec,
    StepSpec,
    from_json,
    to_json,
)

OPTIMIZER = OptimizerSpec(
    name="adamw", learning_rate=1e-4, min_learning_rate=1e-4, warmup_steps=0, decay_steps=1, schedule="constant",
    weight_decay=0.1, beta1=0.9, beta2=0.95, momentum=0.9, grad_clip=1.0,
)  # fmt: skip
LABELS = {
    "6n_over_datasheet": "6N over datasheet",
    "palm_over_measured_product": "PaLM over measured product",
    "roofline_sum": "roofline sum",
    "assay_from_0": "Assay, nothing measured",
    "assay_from_3": "Assay, 3 measured",
    "assay_from_all": "Assay, all measured",
    "measured_again": "every second visit again",
}
ROLES = ("known", "fresh")


def main() -> int:
    """Runs the comparison; returns 1 if nothing could be compared, else 0, whether or not targets were met."""
    options = _parse()
    device = _device(options)
    calibration = _calibrate(options, device)
    rates = read_rates(calibration).get(options.precision)
    if rates is None:
        print(f"no rates for {options.precision} on {device.id}: the calibration failed", file=sys.stderr)
        return 1
    model = TimeModel(device_type=device.type, rates=rates)
    asked = (device.type, options.precision, options.execution)
    drawn = [("known", *one) for one in draw(options.known, 1000 + options.seed, *asked)]
    drawn += [("fresh", *one) for one in draw(options.shapes, 2000 + options.seed, *asked)]
    seen: dict[str, dict[str, Any]] = {}

    def write(environment: dict[str, Any]) -> dict[str, Any]:
        report = summarise(list(seen.values()), options, device, model, calibration, environment)
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        return report

    environment, order = {}, random.Random(options.seed)
    try:
        with tempfile.TemporaryDirectory(prefix="assay-prediction-", ignore_cleanup_errors=True) as folder:
            for _ in range(options.processes):
                shapes = order.sample(drawn, len(drawn))
                environment = _measure(shapes, options, device, seen, Path(folder)) or environment
                write(environment)
    finally:
        report = write(environment)
    print_table(report, options)
    return 0 if any(name.startswith("assay") for name in report["figures"]) else 1


def add_visit(seen: dict[str, dict[str, Any]], visit: dict[str, Any]) -> None:
    """Adds a visit to those of its shape, `visits_s`."""
    key = json.dumps([visit["role"], visit["shape"], visit["step"]])
    one = seen.setdefault(key, {**visit, "visits_s": []})
    if "step_time_s" in visit:
        one.pop("failed", None)
        one["visits_s"].append(visit["step_time_s"])


def _calibrate(options: argparse.Namespace, device: DeviceSpec) -> dict[str, Any]:
    """Measures ceilings and operators, as the pipeline does."""
    shared = {"device": to_json(device), "precisions": [options.precision]}
    targets = {
        "workflow_scripts.lib.calibration:measure_ceilings": {"sustain_s": options.sustain},
        "workflow_scripts.lib.operator_costs:measure_operators": {"budget_s": options.calibration},
    }
    found: dict[str, Any] = {"ceilings": []}
    for target, more in targets.items():
        outcome = run_isolated(target, shared | more, device=device, timeout_s=600.0)
        _tell(target.partition(":")[2], outcome)
        found |= outcome.result or {}
    return found


def _measure(
    shapes: list, options: argparse.Namespace, device: DeviceSpec, seen: dict[str, dict[str, Any]], compiled: Path
) -> dict[str, Any] | None:
    """Measures shapes, each a role, model and step, in one process unless it ends before its time.

    Known and fresh ones share it: its luck would else be a difference between them. Visits are added to `seen` as they
    come, and nothing else is done meanwhile; what is compiled stays in the folder `compiled` for the next process.
    """
    rest, environment, in_turn = list(shapes), None, options.rounds > 1
    measure = MeasureSpec(min_samples=5, target_interval=0.02, max_seconds=options.seconds, timeout_s=options.timeout)
    while rest:
        heard: list[int] = []

        def take(message: dict[str, Any], shapes_left: list = rest, heard: list[int] = heard) -> None:
            index = message.pop("index")
            role, shape, step = shapes_left[index]
            heard.append(index)
            add_visit(seen, {"role": role, "shape": to_json(shape), "step": to_json(step), **message})
            seconds = message.get("step_time_s")
            told = message.get("failed", "built") if seconds is None else f"{seconds * 1e3:.2f} ms"
            print(f"{role} {shape.architecture} {shape.n_layer}×{shape.n_embd}: {told}", file=sys.stderr, flush=True)

        outcome = run_isolated(
            f"benchmarks.prediction_sides:{'measure_in_turn' if in_turn else 'measure_shapes'}",
            {
                "device": to_json(device), "optimizer": to_json(OPTIMIZER), "measure": to_json(measure),
                "shapes": [(to_json(shape), to_json(step)) for _, shape, step in rest], "rounds": options.rounds,
                "builders": options.builders,
            },
            device=device, timeout_s=options.timeout, on_message=take, compiled=compiled,
        )  # fmt: skip
        if outcome.status == "ok":
            return outcome.result["environment"]
        _tell("shapes", outcome)
        rest = [] if in_turn else rest[max(heard, default=-1) + 2 :]  # but the one that ended it
    return environment


def summarise(
    measured: list[dict[str, Any]],
    options: argparse.Namespace,
    device: DeviceSpec,
    model: TimeModel,
    calibration: dict[str, Any],
    environment: dict[str, Any],
) -> dict[str, Any]:
    """Turns what was measured so far into figures, targets and what was met."""
    timed = [one for one in measured if one["visits_s"]]
    for one, step_time_s in zip(timed, steady_times([one["visits_s"] for one in timed]), strict=True):
        one["step_time_s"] = step_time_s
    cases = {role: [_case(one) for one in measured if one["role"] == role and "step_time_s" in one] for role in ROLES}
    known, fresh, figures = cases["known"], cases["fresh"], {}
    datasheet = options.datasheet or _datasheet(environment.get("device_name"), options.precision)
    if fresh:
        visits = [one["visits_s"] for one in measured if one["role"] == "fresh"]
        figures = figures_of(compare(known, fresh, model, datasheet, visits))
        if known:
            figures["assay_from_all.within_interval"] = within_interval(known, fresh, model)
    targets = {f"{name}.mean_error": bound for name, bound in TARGETS.items() if f"{name}.mean_error" in figures}
    report = {
        "figures": figures,
        "targets": targets,
        "met": {name: figures[name] <= bound for name, bound in targets.items()},
        "conditions": {
            **environment,
            "device": device.type,
            "threads": device.threads,
            "precision": options.precision,
            "execution": options.execution,
            "seed": options.seed,
            "n_known": len(known),
            "n_fresh": len(fresh),
            "visits": options.processes * options.rounds,
            "product_flop_per_s": model.rates.flop_per_s,
            "copy_bytes_per_s": model.rates.bytes_per_s,
            "operator_s": model.rates.operator_s,
            "datasheet_flop_per_s": datasheet,
            "load_1min": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
        "shapes": measured,
        "calibration": calibration,
    }
    if options.execution != "graphed":  # each graph leaves the workspaces of its stream to the next shape's peak
        memory = compare_memory(measured, OPTIMIZER, device)
        for part in ("figures", "targets", "met"):
            report[part] |= memory[part]
    return report


def _case(one: dict[str, Any]) -> Case:
    return Case(
        shape=from_json(ModelShape, one["shape"]),
        step=from_json(StepSpec, one["step"]),
        optimizer=OPTIMIZER,
        step_time_s=one["step_time_s"],
    )


def _datasheet(name: str | None, precision: str) -> float | None:
    """The vendor's FLOP/s of a device of this name, None where none is stated."""
    with (ROOT / "resources/datasheets.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if (row["device"], row["precision"]) == (name, precision) and row["flop_per_s"]:
                return float(row["flop_per_s"])
    return None


def print_table(report: dict[str, Any], options: argparse.Namespace) -> None:
    """Prints the errors of all predictors."""
    figures, conditions = report["figures"], report["conditions"]
    print(
        f"Step time, {options.precision} {options.execution}, {conditions['n_known']} shapes measured to fit on, "
        f"{conditions['n_fresh']} fresh ones predicted, {conditions['visits']} visits each"
    )
    print(f"{'':28}{'mean':>8}{'median':>8}{'largest':>9}{'bias':>8}")
    for name, label in LABELS.items():
        if f"{name}.mean_error" in figures:
            values = (figures[f"{name}.{kind}"] for kind in ("mean_error", "median_error", "largest_error", "bias"))
            mean, median, largest, bias = values
            print(f"{label:28}{mean:>8.1%}{median:>8.1%}{largest:>9.1%}{bias:>+8.1%}")
    if conditions["datasheet_flop_per_s"] is None:
        print("6N over datasheet: no datasheet states this device's rate; give it with --datasheet")
    for name, bound in report["targets"].items():
        print(f"{name}: {figures[name]:.4g}, goal {bound:g}: {'met' if report['met'][name] else 'missed'}")
    failed = [one for one in report["shapes"] if "failed" in one]
    for one in failed:
        print(f"not measured: {one['shape']['n_layer']} × {one['shape']['n_embd']}: {one['failed']}")


def _tell(what: str, outcome: Outcome) -> None:
    print(f"{what}: {outcome.status} {outcome.reason} ({outcome.wall_s:.0f} s)", file=sys.stderr, flush=True)


def _device(options: argparse.Namespace) -> DeviceSpec:
    index = 0 if options.device == "cuda" else None
    return DeviceSpec(id=f"cuda{index}" if index == 0 else options.device, type=options.device, threads=options.threads,
                      index=index)  # fmt: skip


def _parse() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda", "mps"], default="cpu")
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16", "fp16"], default="fp32")
    parser.add_argument("--execution", choices=["eager", "compiled", "graphed"], default="eager")
    parser.add_argument("--shapes", type=int, default=30, help="fresh shapes that are predicted and measured")
    parser.add_argument("--known", type=int, default=8, help="shapes that are measured to fit on, at most 10")
    parser.add_argument("--processes", type=int, default=4, help="how many measure all shapes, one after the other")
    parser.add_argument("--rounds", type=int, default=1, help="how often each does; more than once all stay in memory")
    parser.add_argument("--builders", type=int, default=1, help="with more rounds: processes that build side by side")
    parser.add_argument("--seconds", type=float, default=0.5, help="longest sampling of a visit, after its first step")
    parser.add_argument("--calibration", type=float, default=20.0, help="time for operators in each precision, in s")
    parser.add_argument("--sustain", type=float, default=1.0, help="how long the product is sustained, in s")
    parser.add_argument("--datasheet", type=float, help="the vendor's FLOP/s, where resources/ states none")
    parser.add_argument("--timeout", type=float, default=1200.0, help="longest life of a measuring process, in s")
    parser.add_argument("--seed", type=int, default=0, help="of the shapes")
    options = parser.parse_args()
    if options.builders < 1 or (options.builders > 1 and options.rounds == 1):
        parser.error(f"--builders is {options.builders}: it must be at least 1, and more only with --rounds above 1")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
