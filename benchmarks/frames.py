"""Shows what a call costs whose frame does not fit in its thread's chunk, and what room for frames saves a step.

    python benchmarks/frames.py [--device cpu|cuda] [--layers N ...] [--rounds 3] [--threads N] [--json FILE]

First, functions with more and more variables call a small one many times: of a call it gives the median and the longest
time over those functions, without room and with it. Then, on a GPU, compiled steps of some numbers of layers are timed
both ways, each in a process of its own, every second round the other way round: step time, how many pages of memory the
system had to give during a step, and how many times as long it takes without room. Compiled code of CPUs calls no
functions of Python, so its steps are timed only if `--layers` says of which.

`--json FILE` writes {"figures", "targets", "met", "conditions"}; there are no targets.
"""

import argparse
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # in place of this folder, whose `statistics` is not the standard one

import numpy as np  # noqa: E402
import torch  # noqa: E402

from benchmarks.options import parser_of  # noqa: E402
from benchmarks.paired import paired_ratio  # noqa: E402
from benchmarks.prediction import OPTIMIZER  # noqa: E402
from workflow_scripts.lib import execution  # noqa: E402
from workflow_scripts.lib.device_timing import clock_of  # noqa: E402
from workflow_scripts.lib.frames import roomy  # noqa: E402
from workflow_scripts.lib.isolation import run_isolated  # noqa: E402
from workflow_scripts.lib.records import write_json  # noqa: E402
from workflow_scripts.lib.specs import DeviceSpec, MeasureSpec, StepSpec, from_json, to_json  # noqa: E402
from workflow_scripts.lib.step import TrainStep  # noqa: E402
from workflow_scripts.lib.study import complete_shape  # noqa: E402
from workflow_scripts.lib.timing import sample_steps  # noqa: E402

N_CALLS, N_STEPS = 2000, 20
N_VARIABLES = range(1, 4201, 25)  # of the calling functions: up to those of two chunks
LAYERS = (22, 25, 27)
SIDES = ("without_room", "with_room")
PRECISIONS = {"cpu": "fp32", "cuda": "bf16"}
BATCH_SIZE, SEQUENCE_LENGTH, VOCABULARY = 4, 256, 10_000
SHAPE = {"architecture": "gpt2", "n_head": 4, "n_embd": 256, "dropout": 0.0, "bias": False}


def main() -> int:
    """Measures calls and steps; returns 1 if a step could not be measured."""
    options = _parse()
    index = 0 if options.device == "cuda" else None
    device = DeviceSpec(id=options.device, type=options.device, threads=options.threads, index=index)
    layers = options.layers or (LAYERS if options.device == "cuda" else ())
    figures = _compare_calls()
    with tempfile.TemporaryDirectory(prefix="assay-frames-", ignore_cleanup_errors=True) as folder:
        for n_layer in layers:
            found = _compare_steps(device, n_layer, options.rounds, Path(folder))
            if found is None:
                return 1
            figures |= found
    if options.json:
        conditions = {"device": options.device, "threads": options.threads, "rounds": options.rounds,
                      "python": platform.python_version(), "torch": torch.__version__,
                      "platform": platform.platform()}  # fmt: skip
        write_json(options.json, {"figures": figures, "targets": {}, "met": {}, "conditions": conditions})
    return 0


def _compare_calls() -> dict[str, float]:
    figures = {}
    for side in SIDES:
        times_s = in_thread(lambda: [_call_s(n) for n in N_VARIABLES], side)
        median_s, longest_s = float(np.median(times_s)), max(times_s)
        figures |= {f"{side}.call.median_s": median_s, f"{side}.call.longest_s": longest_s}
        print(f"a call, {side}: median {median_s * 1e6:.2f} µs, longest {longest_s * 1e6:.2f} µs", flush=True)
    return figures


def _compare_steps(device: DeviceSpec, n_layer: int, n_rounds: int, compiled: Path) -> dict[str, float | None] | None:
    """Times a step in rounds; None if it cannot be measured."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for turn in range(n_rounds):
        for side in sorted(SIDES, reverse=bool(turn % 2)):
            asked = {"device": to_json(device), "n_layer": n_layer, "side": side}
            outcome = run_isolated(
                "benchmarks.frames:measure", asked, device=device, timeout_s=600.0, compiled=compiled
            )
            if outcome.result is None:
                print(f"{n_layer} layers: {outcome.status} {outcome.reason}", file=sys.stderr)
                return None
            found[side].append(outcome.result)
    figures = {}
    for side in SIDES:
        step_time_s, pages = (float(np.median([one[key] for one in found[side]])) for key in ("step_time_s", "pages"))
        figures |= {f"{n_layer}.{side}.step_time_s": step_time_s, f"{n_layer}.{side}.pages": pages}
        print(f"{n_layer} layers, {side}: {step_time_s * 1e3:.2f} ms a step, {pages:.0f} pages")
    ratio = paired_ratio(*([one["step_time_s"] for one in found[side]] for side in SIDES))
    print(f"{n_layer} layers: without room a step takes {ratio}", flush=True)
    return figures | {f"{n_layer}.ratio": ratio.value, f"{n_layer}.low": ratio.low, f"{n_layer}.high": ratio.high}


def in_thread(function: Callable[[], Any], side: str) -> Any:
    """Calls a function in a thread of its own, whose frames nobody has made room for, or so that it has room."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(_with_room if side == "with_room" else _as_it_is, function).result()


def _as_it_is(function: Callable[[], Any]) -> Any:
    return function()


@roomy
def _with_room(function: Callable[[], Any]) -> Any:
    return function()


def caller(n_variables: int) -> Callable[[int], None]:
    """Writes a function with so many variables that calls another so many times, which has a few and does nothing."""
    scope: dict[str, Any] = {}
    exec(f"def leaf():\n return\n {_variables(N_VARIABLES.step)}", scope)
    exec(f"def call(times):\n for _ in range(times): leaf()\n return\n {_variables(n_variables)}", scope)
    return scope["call"]


def _variables(count: int) -> str:
    return "=".join(f"v{number}" for number in range(count)) + "=0"


def _call_s(n_variables: int) -> float:
    call = caller(n_variables)
    started = time.perf_counter()
    call(N_CALLS)
    return (time.perf_counter() - started) / N_CALLS


def pages_a_call() -> float:
    """How many pages of memory the system gives for a call, with as many variables in the caller as make it most."""
    most = 0.0
    for n_variables in N_VARIABLES:
        call, before = caller(n_variables), pages_given()
        call(N_CALLS)
        most = max(most, (pages_given() - before) / N_CALLS)
    return most


def pages_given() -> int:
    """How many pages of memory the system has given this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def measure(arguments: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> dict[str, float]:
    """Measures a compiled step in this process: `step_time_s`, and `pages` that the system gave during each.

    Args:
        arguments: `device` (as JSON), `n_layer`, `side`.
        send: takes messages; none is sent.
    """
    if arguments["side"] == "without_room":
        execution._make_room_for_backward = lambda device: None
    return in_thread(lambda: _measure(arguments), arguments["side"])


def _measure(arguments: dict[str, Any]) -> dict[str, float]:
    device = from_json(DeviceSpec, arguments["device"])
    model = complete_shape({**SHAPE, "n_layer": arguments["n_layer"]}, VOCABULARY, SEQUENCE_LENGTH)
    spec = StepSpec(batch_size=BATCH_SIZE, precision=PRECISIONS[device.type], execution="compiled")
    tokens = np.zeros(20 * SEQUENCE_LENGTH, dtype=np.uint16)
    step = TrainStep.build(model, spec, OPTIMIZER, device, tokens, N_STEPS, 0)
    lasting = MeasureSpec(min_samples=5, target_interval=0.01, max_seconds=5.0, timeout_s=300.0)
    samples = sample_steps(step.run, step.synchronise, clock=clock_of(step.device), measure=lasting).samples_s
    before = pages_given()
    for _ in range(N_STEPS):
        step.run()
    step.synchronise()
    return {"step_time_s": float(np.median(samples)), "pages": (pages_given() - before) / N_STEPS}


def _parse() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--layers", type=int, nargs="+", help="of the steps that are timed")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
