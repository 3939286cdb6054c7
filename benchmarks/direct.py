"""Times cells directly, without the workflow: one that a study has measured, or, in turn, one in both ways.

    python benchmarks/direct.py --record results/STUDY/devices/DEVICE/cells/CELL.json
    python benchmarks/direct.py [--device cpu|cuda] [--pairs 5] [--threads N] [--json FILE]

The first form calls the measuring function in this process, for the cell whose record is named, and prints its median
beside the recorded one. The second shows that the workflow does not disturb what it measures: a pair is the first form
in a plain process, and the same cell through `snakemake`, one after the other, every second pair the other way round.
They agree if the interval of their ratio lies between 1 ± 15 % and holds 1, or if the ratio is within 2 % of 1; an
interval that is wider and holds 1 decides nothing.

`--json FILE` writes, of the second form, {"figures", "targets", "met", "conditions"}.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # in place of this folder, whose `statistics` is not the standard one

import statistics  # noqa: E402

import numpy as np  # noqa: E402

from benchmarks.options import parser_of  # noqa: E402
from benchmarks.paired import Ratio, paired_ratio  # noqa: E402
from benchmarks.trust import CELLS, print_others  # noqa: E402
from workflow_scripts.lib.estimates import spread  # noqa: E402
from workflow_scripts.lib.machine_lock import machine_lock  # noqa: E402
from workflow_scripts.lib.provenance import commit  # noqa: E402
from workflow_scripts.lib.records import write_json  # noqa: E402

PROGRAM = ("Snakefile", "config.yaml", "config.schema.yaml", "rules", "workflow_scripts", "resources", "report")
STUDY, CONFIG = "direct", "direct.yaml"
WAYS = {"direct": "directly", "workflow": "through the workflow"}
AGREE = "they agree"
CLOSE, WIDE = 0.02, 0.15
ENGINES_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def main() -> int:
    """Times one cell directly, or pairs; returns 1 where the two ways do not agree or a run failed."""
    options = _parse()
    if options.record:
        found = time_directly(options.record)
        recorded = middle(json.loads(options.record.read_text(encoding="utf-8")))
        ratio = f", {found['step_time_s'] / recorded:.3f}× the recorded {recorded * 1e3:.4g} ms" if recorded else ""
        print(f"{found['step_time_s'] * 1e3:.4g} ms a step, {found['threads']} threads{ratio}", file=sys.stderr)
        print(json.dumps(found))
        return 0
    with tempfile.TemporaryDirectory(prefix="assay-direct-") as folder:
        record = set_up(Path(folder), options.device, options.threads)
        through_workflow(record)  # prepares corpus and calibration, too; this first time does not count
        pairs = [time_pair(record, turn) for turn in range(options.pairs)]
    report = summarise(pairs, options.device)
    print_report(report)
    if options.json:
        write_json(options.json, report)
    return 0 if report["met"]["verdict"] else 1


def time_directly(record: Path) -> dict[str, Any]:
    """Measures the cell of a record in this process; returns what `seen_in` keeps."""
    from workflow_scripts.lib.cell import measure_cell
    from workflow_scripts.lib.process_memory import keep_freed_memory

    keep_freed_memory()
    spec = json.loads(record.read_text(encoding="utf-8"))["spec"]
    corpus = record.parents[3] / "corpus"
    arguments = {"cell": spec, "tokens": str(corpus / "tokens.bin"), "corpus": str(corpus / "corpus.json")}
    with machine_lock():
        return seen_in(measure_cell(arguments, lambda message: None))


def seen_in(result: dict[str, Any]) -> dict[str, Any]:
    """What of a cell's result is compared: median in s, samples, threads, and cores that others kept busy meanwhile."""
    samples = result["samples_s"]
    return {
        "step_time_s": statistics.median(samples),
        "n_samples": len(samples),
        "threads": result["observed"]["threads"],
        "others_cores": result["machine"]["between"]["others_cores"],
    }


def middle(record: dict[str, Any]) -> float | None:
    """The median of a record's warm samples in s, None where it has none."""
    samples = (record["result"] or {}).get("samples_s")
    return statistics.median(samples) if samples else None


def set_up(folder: Path, device: str, threads: int) -> Path:
    """Copies the program into a folder, with a study of one cell; returns where the cell's record will be."""
    for name in PROGRAM:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    model, step = CELLS[device]
    letters = np.random.default_rng(0).integers(ord("0"), ord("z"), size=300_000).astype(np.uint8)
    (folder / "text.txt").write_bytes(letters.tobytes())
    shape = {"name": "cell", "architecture": model.architecture, "bias": model.bias, "n_inner": model.n_inner}
    product = {
        "models": ["cell"], "batch_size": [step.batch_size], "sequence_length": [model.sequence_length],
        "precision": [step.precision], "execution": [step.execution],
    }  # fmt: skip
    config = {
        "study": STUDY,
        "corpus": {"source": "path", "path": "text.txt"},
        "devices": [{"id": device, "type": device, "threads": threads}],
        "models": [shape | {name: getattr(model, name) for name in ("n_layer", "n_head", "n_embd")}],
        "grid": {"products": [product]},
        "calibration": {"sustain_s": 0.1, "operators_s": 0.5},
        "selection": None,
        "recommendation": None,
        "training": {"models": []},
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")  # JSON is YAML
    cell = f"cell-b{step.batch_size}-t{model.sequence_length}-{step.precision}-{step.execution}"
    return folder / "results" / STUDY / "devices" / device / "cells" / f"{cell}.json"


def through_workflow(record: Path) -> dict[str, Any]:
    """Lets the workflow measure the cell anew."""
    folder = record.parents[5]
    target = record.relative_to(folder).as_posix()
    words = ["--cores", "all", "--configfile", CONFIG, "--force", target]
    run([sys.executable, "-m", "snakemake", *words], folder)
    found = json.loads(record.read_text(encoding="utf-8"))
    if found["status"] != "ok":
        raise SystemExit(f"{target}: {found['status']}: {found['reason']}")
    return seen_in(found["result"])


def directly(record: Path) -> dict[str, Any]:
    """Measures the same cell in a plain process."""
    return json.loads(run([sys.executable, str(Path(__file__).resolve()), "--record", str(record)], ROOT))


def run(command: list[str], folder: Path) -> str:
    """Runs a command as a person at a fresh terminal would; returns what it printed, or ends with its last lines."""
    environment = {name: value for name, value in os.environ.items() if name not in ENGINES_THREADS}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def time_pair(record: Path, turn: int) -> dict[str, Any]:
    """One pair, in the order of its turn."""
    ways = [("direct", directly), ("workflow", through_workflow)]
    pair = {name: measure(record) for name, measure in (ways if turn % 2 == 0 else ways[::-1])}
    text = ", ".join(f"{WAYS[name]} {pair[name]['step_time_s'] * 1e3:.4g} ms" for name in WAYS)
    print(f"pair {turn + 1}: {text}", file=sys.stderr, flush=True)
    return pair


def summarise(pairs: list[dict[str, Any]], device: str) -> dict[str, Any]:
    """Turns pairs into figures: `ratio` (workflow over direct) with its interval; how far runs of each way differ."""
    times = {way: [pair[way]["step_time_s"] for pair in pairs] for way in WAYS}
    ratio = paired_ratio(times["workflow"], times["direct"])
    figures: dict[str, Any] = {"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high}
    for way in WAYS:
        between, _ = spread(times[way])
        figures |= {f"{way}.median_s": statistics.median(times[way]), f"{way}.between": between}
        figures[f"{way}.threads"] = sorted({pair[way]["threads"] for pair in pairs})
    model, step = CELLS[device]
    others = [one["others_cores"] for pair in pairs for one in pair.values() if one["others_cores"] is not None]
    conditions = {
        "pairs": len(pairs), "device": device, "n_embd": model.n_embd, "n_layer": model.n_layer,
        "batch_size": step.batch_size, "precision": step.precision, "execution": step.execution,
        "others_cores": statistics.median(others) if others else None,
        "torch": version("torch"), "platform": platform.platform(), "commit": commit(),
    }  # fmt: skip
    known = {name: value for name, value in figures.items() if value is not None}
    found = verdict(ratio)
    return {
        "figures": known | {"verdict": found},
        "targets": {"verdict": AGREE},
        "met": {"verdict": found == AGREE},
        "conditions": conditions,
    }


def verdict(ratio: Ratio) -> str:
    """Whether the two ways take the same time, as far as can be told."""
    if abs(ratio.value - 1) <= CLOSE:
        return AGREE
    if ratio.low is None or ratio.high is None:
        return "undecided: too few pairs"
    if not ratio.low <= 1 <= ratio.high:
        return "they differ"
    return AGREE if ratio.low >= 1 - WIDE and ratio.high <= 1 + WIDE else "undecided: runs differ too much"


def print_report(report: dict[str, Any]) -> None:
    """Prints both ways and their ratio."""
    figures = report["figures"]
    for way, title in WAYS.items():
        between = figures.get(f"{way}.between")
        varies = "" if between is None else f", runs differ by up to {between:.1%}"
        threads = " or ".join(map(str, figures[f"{way}.threads"]))
        print(f"{title:22}{figures[f'{way}.median_s'] * 1e3:9.4g} ms, {threads} threads{varies}")
    interval = f" [{figures['ratio_low']:.3f}, {figures['ratio_high']:.3f}]" if "ratio_low" in figures else ""
    print(f"workflow over direct: {figures['ratio']:.3f}×{interval}: {figures['verdict']}")
    print_others(report["conditions"]["others_cores"])


def _parse() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--record", type=Path, help="record of the cell to time directly")
    parser.add_argument("--device", choices=sorted(CELLS), default="cpu")
    parser.add_argument("--pairs", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
