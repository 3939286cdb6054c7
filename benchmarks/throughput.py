"""Compares the training throughput of Assay's step with nanoGPT's, in turn on the same machine.

    python benchmarks/throughput.py --nanogpt PATH [--preset cpu] [--rounds 5] [--json FILE]

nanoGPT is no part of this repository: PATH is a checkout that you have. A round runs nanoGPT's iteration and then each
of Assay's cases, every one in a fresh process, with the same shapes, tokens, batch and threads; the ratio is taken
round by round. Before and after the rounds large matrix products are timed: the ceiling that FLOP/s are compared with.

`--json FILE` writes {"figures", "targets", "met", "conditions"}; what was not measured is not in it.
"""

import argparse
import dataclasses
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # in place of this folder, whose `statistics` is not the standard one

from benchmarks.options import parser_of  # noqa: E402
from benchmarks.paired import paired_ratio, spread_of  # noqa: E402
from benchmarks.presets import CHARACTERS, PRESETS, Case, Preset  # noqa: E402
from benchmarks.tokens import write_characters, write_random  # noqa: E402
from workflow_scripts.lib.counts import flops_per_token  # noqa: E402
from workflow_scripts.lib.fork_server import COMPILED_FOLDER  # noqa: E402
from workflow_scripts.lib.isolation import run_isolated  # noqa: E402
from workflow_scripts.lib.outcome import Outcome  # noqa: E402
from workflow_scripts.lib.specs import DeviceSpec, MeasureSpec, to_json  # noqa: E402

SIDES = "benchmarks.measured_sides"
GIB = 2**30


def main() -> int:
    """Runs the comparison; returns 1 if a side failed, else 0, whether or not targets were met."""
    options = _parse()
    preset = PRESETS[options.preset]
    device = _device(preset, options.threads)
    cases = [c for c in preset.cases if options.case is None or c.name in options.case]
    measure = MeasureSpec(
        min_samples=options.samples, target_interval=0.002, max_seconds=options.seconds, timeout_s=options.timeout
    )
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "train.bin"
        source = write_tokens(data, preset, options.text)
        shared = {
            "preset": options.preset,
            "device": to_json(device),
            "measure": to_json(measure),
            "data": str(data),
        }
        precisions = sorted({c.precision for c in cases} | {_nanogpt_precision(preset)})

        def run(function: str, arguments: dict[str, Any]) -> Outcome:
            # All processes share what the compiler leaves: only the first round waits for it.
            environment = {COMPILED_FOLDER: f"{folder}/compiled"}
            return run_isolated(
                f"{SIDES}:{function}", shared | arguments, device=device, timeout_s=options.timeout,
                environment=environment,
            )  # fmt: skip

        first = run("measure_ceiling", {"precisions": precisions})
        if first.status != "ok":
            print(f"no ceiling: {first.status}: {first.reason}", file=sys.stderr)
            return 1
        conditions = _conditions(options, preset, device, source, first.result["environment"])
        rates = [first.result["flop_per_s"]]
        theirs: list[dict] = []
        ours: dict[str, list[dict]] = {case.name: [] for case in cases}
        for number in range(1, options.rounds + 1):
            _take_round(number, run, cases, options.nanogpt, theirs, ours)
            if number == options.rounds:
                last = run("measure_ceiling", {"precisions": precisions})
                rates += [last.result["flop_per_s"]] if last.status == "ok" else []
            # What disturbs a product can only slow it down.
            ceilings = {precision: max(rate[precision] for rate in rates) for precision in precisions}
            report = summarise(preset, cases, theirs, ours, ceilings, conditions | {"rounds": number})
            if options.json:  # after each round: what is cut off keeps what it has
                options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print_table(report, cases)
    return 0 if len(theirs) == options.rounds and all(len(r) == options.rounds for r in ours.values()) else 1


def _conditions(
    options: argparse.Namespace, preset: Preset, device: DeviceSpec, source: str, environment: dict[str, Any]
) -> dict[str, Any]:
    return {
        **environment,
        "preset": options.preset,
        "tokens": source,
        "threads": device.threads,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "assay_commit": _commit(ROOT),
        "nanogpt_commit": _commit(options.nanogpt),
        "nanogpt": f"dtype {preset.dtype}, compile {preset.compiled}, log_interval {preset.log_interval}",
        "differences": "GELU: Assay's is GPT-2's tanh approximation, nanoGPT's the exact one; "
        "residual stream: compiled bf16 keeps it in bf16, nanoGPT's autocast in float32",
    }


def write_tokens(path: Path, preset: Preset, text: Path | None) -> str:
    """Writes the tokens that both sides train on, and says what they are."""
    vocab_size = preset.shape.vocab_size
    if text is not None and vocab_size == CHARACTERS:
        return f"{write_characters(text, vocab_size, path)} characters of {text.name}"
    return f"{write_random(vocab_size, path)} random ids below {vocab_size}"


def _take_round(
    number: int,
    run: Callable[[str, dict[str, Any]], Outcome],
    cases: list[Case],
    nanogpt: Path,
    theirs: list[dict],
    ours: dict[str, list[dict]],
) -> None:
    """Runs A B₁ B₂ …; the round counts for a case only if both its processes ended well."""
    found = run("measure_nanogpt", {"seed": number, "nanogpt": str(nanogpt)})
    _tell(number, "nanoGPT", found)
    if found.status != "ok":
        return
    theirs.append(_kept(found))
    for case in cases:
        found = run(
            "measure_assay", {"seed": number, "case": {"precision": case.precision, "execution": case.execution}}
        )
        _tell(number, case.name, found)
        if found.status == "ok":
            ours[case.name].append({**_kept(found), "round": len(theirs) - 1})


def _kept(found: Outcome) -> dict[str, Any]:
    return {**found.result, "peak_process_bytes": found.peak_process_bytes}


def summarise(
    preset: Preset,
    cases: list[Case],
    theirs: list[dict],
    ours: dict[str, list[dict]],
    ceilings: dict[str, float],
    conditions: dict[str, Any],
) -> dict[str, Any]:
    """Turns the samples of all rounds into figures, targets and what was met.

    Figures are named `nanogpt.…` and `<precision>_<execution>.…`. `flop_share` is model FLOP/s over the rate of large
    products in the precision in which the case computes its products.
    """
    flops = flops_per_token(preset.shape, preset.shape.sequence_length).training * preset.tokens_per_step
    figures: dict[str, float] = {f"ceiling.{precision}_flop_per_s": rate for precision, rate in ceilings.items()}
    targets: dict[str, float] = {}
    if theirs:
        ceiling = ceilings[_nanogpt_precision(preset)]
        figures |= _side_figures("nanogpt", theirs, preset.tokens_per_step, flops, ceiling)
    best: float | None = None
    for case in cases:
        rounds = ours[case.name]
        if not rounds:
            continue
        key = f"{case.precision}_{case.execution}"
        ceiling = ceilings[case.precision]
        figures |= _side_figures(key, rounds, preset.tokens_per_step, flops, ceiling)
        medians = [float(np.median(r["samples_s"])) for r in rounds]
        ratio = paired_ratio([float(np.median(theirs[r["round"]]["samples_s"])) for r in rounds], medians)
        figures[f"{key}.ratio"] = ratio.value
        if ratio.low is not None and ratio.high is not None:
            figures |= {f"{key}.ratio_low": ratio.low, f"{key}.ratio_high": ratio.high}
        best = max(best or 0.0, ratio.value)
        if case.target is not None:
            targets[f"{key}.ratio"] = case.target
    if preset.target_of_best is not None and best is not None:
        figures["best.ratio"] = best
        targets["best.ratio"] = preset.target_of_best
    met = {name: figures[name] >= bound for name, bound in targets.items()}
    return {"figures": figures, "targets": targets, "met": met, "conditions": conditions}


def _side_figures(key: str, rounds: list[dict], tokens: int, flops: int, ceiling: float) -> dict[str, float]:
    spread = spread_of([r["samples_s"] for r in rounds])
    figures = {f"{key}.{name}": value for name, value in dataclasses.asdict(spread).items()}
    figures[f"{key}.tokens_per_s"] = tokens / spread.median_s
    figures[f"{key}.flop_share"] = flops / spread.median_s / ceiling
    figures[f"{key}.first_step_s"] = rounds[0]["cold_s"][0]  # later rounds find compiled kernels
    peaks = [r["memory"]["peak_allocated_bytes"] or r["peak_process_bytes"] for r in rounds]
    if None not in peaks:
        figures[f"{key}.peak_bytes"] = max(peaks)
    return figures


def print_table(report: dict[str, Any], cases: list[Case]) -> None:
    """Prints the comparison for people."""
    figures, conditions = report["figures"], report["conditions"]
    where = conditions["device_name"] or conditions["platform"]
    print(f"\n{conditions['preset']} on {where}, {conditions['threads']} threads, torch {conditions['torch']}")
    print(f"{conditions['tokens']}; nanoGPT: {conditions['nanogpt']}; {conditions['differences']}")
    for name in sorted(n for n in figures if n.startswith("ceiling.")):
        print(f"matrix products, {name[8:].removesuffix('_flop_per_s')}: {figures[name] / 1e12:.3g} TFLOP/s")
    peak = "peak allocated" if conditions["device_name"] else "peak process"
    print(f"\n{'':16}{'step':>11}{'CV':>8}{'rounds':>8}{'tokens/s':>12}{'FLOP/s':>8}{peak:>16}  ratio")
    for label, key in [("nanoGPT", "nanogpt"), *((c.name, f"{c.precision}_{c.execution}") for c in cases)]:
        if f"{key}.median_s" not in figures:
            print(f"{label:16}{'not measured':>11}")
            continue

        def of(name: str, key: str = key) -> float | None:
            return figures.get(f"{key}.{name}")

        memory = "unknown" if of("peak_bytes") is None else f"{of('peak_bytes') / GIB:.2f} GiB"
        ratio = "" if of("ratio") is None else f"{of('ratio'):.3f}×"
        if of("ratio_low") is not None:
            ratio += f" [{of('ratio_low'):.3f}, {of('ratio_high'):.3f}]"
        goal = report["targets"].get(f"{key}.ratio")
        if goal is not None:
            ratio += f", goal {goal:g}×: {'met' if report['met'][f'{key}.ratio'] else 'missed'}"
        print(
            f"{label:16}{of('median_s') * 1e3:>8.2f} ms{of('cv'):>8.1%}{of('between'):>8.1%}"
            f"{of('tokens_per_s'):>12,.0f}{of('flop_share'):>8.1%}{memory:>16}  {ratio}"
        )
    if "best.ratio" in figures:
        verdict = "met" if report["met"]["best.ratio"] else "missed"
        print(f"fastest precision: {figures['best.ratio']:.3f}×, goal {report['targets']['best.ratio']:g}×: {verdict}")
    if any(name.endswith(".flop_share") and share > 1 for name, share in figures.items()):
        print("More FLOP/s than the matrix products reached: the machine was not alone; measure again.")
    print("CV: of single steps; rounds: largest over smallest median; FLOP/s: share of the matrix products' rate.")


def _tell(number: int, side: str, found: Outcome) -> None:
    if found.status == "ok":
        samples = found.result["samples_s"]
        text = f"{np.median(samples) * 1e3:.3f} ms, {len(samples)} samples, loss {found.result['loss']:.3f}"
    else:
        text = f"{found.status}: {found.reason}"
    print(f"round {number}, {side}: {text}", file=sys.stderr, flush=True)


def _nanogpt_precision(preset: Preset) -> str:
    if preset.device == "cpu":
        return "fp32"
    return {"float32": "tf32", "bfloat16": "bf16"}[preset.dtype]


def _device(preset: Preset, threads: int) -> DeviceSpec:
    index = 0 if preset.device == "cuda" else None
    return DeviceSpec(id="cuda0" if index == 0 else "cpu", type=preset.device, threads=threads, index=index)


def _commit(folder: Path) -> str | None:
    found = subprocess.run(["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def _parse() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--nanogpt", type=Path, required=True, help="a nanoGPT checkout")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="cpu")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of processes; from 3 on the ratio has an interval")
    parser.add_argument("--case", action="append", help='one of Assay\'s cases, as "fp32 compiled"; all by default')
    parser.add_argument("--text", type=Path, help="text whose characters are the tokens of the small presets")
    parser.add_argument("--seconds", type=float, default=15.0, help="longest sampling, after the first step")
    parser.add_argument("--samples", type=int, default=50, help="least warm samples of a process, if time allows")
    parser.add_argument("--timeout", type=float, default=900.0, help="longest life of a process, in s")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
