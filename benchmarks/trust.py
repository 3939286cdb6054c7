"""Shows which faults of a measurement are noticed by Assay, by torch.utils.benchmark and by nanoGPT's way of timing.

    python benchmarks/trust.py [--device cpu|cuda] [--processes 10] [--json FILE]

Part one makes each fault on purpose, see `trust_faults`. (A device that slows down over longer than a cell is sampled
for is not among them: within one cell nobody can see that; Assay's anchors and its record of clocks are for it.) Part
two times one cell in several fresh processes: how far the medians of processes differ, beside what nanoGPT's log and
its `bench.py` would have printed for the same steps in the same processes.

`--json FILE` writes {"figures", "targets", "met", "conditions"}; what was not measured is not in it.
"""

import argparse
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # in place of this folder, whose `statistics` is not the standard one

import statistics  # noqa: E402

from benchmarks.options import parser_of  # noqa: E402
from benchmarks.trust_faults import MEASURE, Fault, all_faults  # noqa: E402
from workflow_scripts.lib.devices import detect_devices  # noqa: E402
from workflow_scripts.lib.estimates import spread  # noqa: E402
from workflow_scripts.lib.isolation import run_isolated  # noqa: E402
from workflow_scripts.lib.provenance import commit  # noqa: E402
from workflow_scripts.lib.specs import DeviceSpec, ModelShape, StepSpec, to_json  # noqa: E402

TOOLS = {"assay": "Assay", "torch_timer": "torch.utils.benchmark", "nanogpt": "nanoGPT's way"}
WAYS = {"assay": "Assay: median", "log": "nanoGPT's log: one iteration", "mean": "bench.py: mean of 20"}
SPREAD_TARGETS = {"cuda": 0.01}  # largest over smallest median of all processes, minus 1
SIDES = "benchmarks.trust_sides:time_both_ways"
# What is timed: some 25 ms a step on two cores; nanoGPT's shakespeare_char on a GPU.
CELLS = {
    "cpu": (
        ModelShape(architecture="gpt2", n_layer=4, n_head=4, n_embd=128, n_inner=512, vocab_size=80,
                   sequence_length=64, bias=False),
        StepSpec(batch_size=8, precision="fp32", execution="eager"),
    ),
    "cuda": (
        ModelShape(architecture="gpt2", n_layer=6, n_head=6, n_embd=384, n_inner=1536, vocab_size=80,
                   sequence_length=256, bias=False),
        StepSpec(batch_size=64, precision="bf16", execution="graphed"),
    ),
}  # fmt: skip


def main() -> int:
    """Runs both parts; returns 1 if a process failed, else 0, whether or not targets were met."""
    options = _parse()
    faults = all_faults()
    print_faults(faults)
    device = DeviceSpec(id="cpu", type="cpu", threads=options.threads)
    if options.device == "cuda":
        device = DeviceSpec(id="cuda0", type="cuda", threads=options.threads, index=0)
    found = time_processes(device, options.processes)
    complete = len(found) == options.processes
    report = summarise(faults, found, device)
    if found:
        print_spreads(report["figures"], report["conditions"]["others_cores"])
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if complete else 1


def time_processes(device: DeviceSpec, n_processes: int) -> list[dict[str, Any]]:
    """Times the cell in fresh processes, one after the other; those that fail are told and left out."""
    model, step = CELLS[device.type]
    shared = {"model": to_json(model), "step": to_json(step), "device": to_json(device), "measure": to_json(MEASURE)}
    results = []
    for turn in range(n_processes):
        outcome = run_isolated(SIDES, {**shared, "turn": turn}, device=device, timeout_s=600, fresh=True)
        if outcome.status == "ok":
            results.append(outcome.result)
            text = ", ".join(f"{way} {outcome.result[way] * 1e3:.3f} ms" for way in WAYS)
        else:
            text = f"{outcome.status}: {outcome.reason}"
        print(f"process {turn + 1} of {n_processes}: {text}", file=sys.stderr, flush=True)
    return results


def summarise(faults: list[Fault], found: list[dict[str, Any]], device: DeviceSpec) -> dict[str, Any]:
    """Turns both parts into figures, targets and what was met.

    Figures: `<tool>.noticed`, the faults that it noticed; `<tool>.false_alarm`, whether it noticed something where
    nothing was wrong; `<tool>.<fault>`; and for each way of timing `<way>.median_s`, `<way>.between` (largest over
    smallest process, minus 1) and `<way>.cv`.
    """
    figures: dict[str, Any] = {}
    made = [fault for fault in faults if fault.name != "none"]
    for tool in TOOLS:
        figures[f"{tool}.noticed"] = sum(getattr(fault, tool).said == "noticed" for fault in made)
        figures |= {f"{tool}.{fault.name}": getattr(fault, tool).said for fault in made}
        calm = next(getattr(fault, tool).said for fault in faults if fault.name == "none")
        figures[f"{tool}.false_alarm"] = calm == "noticed"
    for way in WAYS if found else ():
        values = [result[way] for result in found]
        between, cv = spread(values)
        known = {"median_s": statistics.median(values), "between": between, "cv": cv}
        figures |= {f"{way}.{name}": value for name, value in known.items() if value is not None}
    targets: dict[str, Any] = {"assay.noticed": len(made), "assay.false_alarm": False}
    met = {name: figures[name] == bound for name, bound in targets.items()}
    if device.type in SPREAD_TARGETS and "assay.between" in figures:
        targets["assay.between"] = SPREAD_TARGETS[device.type]
        met["assay.between"] = figures["assay.between"] <= targets["assay.between"]
    model, step = CELLS[device.type]
    others = [result["others_cores"] for result in found if result.get("others_cores") is not None]
    conditions = {
        "others_cores": statistics.median(others) if others else None,
        "faults": len(made),
        "processes": len(found),
        "device": to_json(device),
        "device_name": next((one["name"] for one in detect_devices() if one["type"] == device.type), None),
        "model": to_json(model),
        "step": to_json(step),
        "torch": version("torch"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "commit": commit(),
    }
    return {"figures": figures, "targets": targets, "met": met, "conditions": conditions}


def print_faults(faults: list[Fault]) -> None:
    """Prints what each tool says of each fault."""
    for fault in faults:
        print(f"{fault.name.replace('_', ' ')}: {fault.what}")
        for tool, title in TOOLS.items():
            word = getattr(fault, tool)
            print(f"  {title:22} {word.said:14} {word.text}")
    print()
    for tool, title in TOOLS.items():
        noticed = [fault.name for fault in faults if getattr(fault, tool).said == "noticed"]
        print(f"{title:22} noticed {len(noticed)} of {len(faults) - 1}")
    print(
        "right, wrong: the number that it gives, without a warning; unaware: no one number would be right.\n",
        flush=True,
    )


def print_spreads(figures: dict[str, Any], others_cores: float | None) -> None:
    """Prints how far processes differ, by each way of timing."""
    print(f"{'one cell, by':30}{'median':>12}{'between processes':>20}{'CV':>8}")
    for way, title in WAYS.items():
        between, cv = figures.get(f"{way}.between"), figures.get(f"{way}.cv")
        spreads = f"{between:>20.2%}{cv:>8.2%}" if between is not None else f"{'one process':>20}"
        print(f"{title:30}{figures[f'{way}.median_s'] * 1e3:>9.3f} ms{spreads}")
    print_others(others_cores)


def print_others(others_cores: float | None) -> None:
    """Prints how busy other processes kept the machine."""
    busy = "an unknown number of" if others_cores is None else f"{others_cores:.1f}"
    print(f"Other processes kept {busy} cores busy meanwhile (median over runs).")


def _parse() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--device", choices=sorted(CELLS), default="cpu")
    parser.add_argument("--processes", type=int, default=10, help="fresh processes; 0 leaves the second part out")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
