"""Shows what a CPU's step gains where a process keeps the memory that it frees (`process_memory.keep_freed_memory`).

    python benchmarks/kept_memory.py [--rounds 5] [--threads N] [--json FILE]

In each round every shape is timed twice, each time in a process of its own: as every process of Assay that measures or
trains, and with glibc as it is by default; every second round the other way round. Ratios above 1: keeping is faster.
`--json FILE` writes {"figures", "targets", "met", "conditions"}; there are no targets.
"""

import argparse
import platform
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # in place of this folder, whose `statistics` is not the standard one

from benchmarks.options import parser_of  # noqa: E402
from benchmarks.paired import paired_ratio  # noqa: E402
from benchmarks.prediction import OPTIMIZER  # noqa: E402
from workflow_scripts.lib.isolation import run_isolated  # noqa: E402
from workflow_scripts.lib.process_memory import keep_freed_memory  # noqa: E402
from workflow_scripts.lib.records import write_json  # noqa: E402
from workflow_scripts.lib.specs import DeviceSpec, MeasureSpec, StepSpec, to_json  # noqa: E402
from workflow_scripts.lib.study import complete_shape  # noqa: E402

# Layers, width, vocabulary, batch, context: characters, and vocabularies whose logits or gradients are large blocks.
SHAPES = {
    "characters": (4, 128, 65, 8, 128),
    "vocabulary_4096": (2, 128, 4096, 8, 128),
    "vocabulary_16384": (2, 128, 16384, 8, 128),
    "wide_vocabulary_16384": (1, 480, 16384, 1, 32),
}
HEAD = 32
# Any setting of the person's own stands, even one that changes nothing.
SIDES = {"default": {"GLIBC_TUNABLES": ""}, "kept": None}


def main() -> int:
    """Times the rounds; returns 1 if a step could not be timed."""
    options = _parse()
    if not keep_freed_memory():
        print("nothing to compare: this is not glibc, or MALLOC_ variables or GLIBC_TUNABLES set it", file=sys.stderr)
        return 1
    device = DeviceSpec(id="cpu", type="cpu", threads=options.threads)
    times: dict[str, dict[str, list[float]]] = {name: {side: [] for side in SIDES} for name in SHAPES}
    for turn in range(options.rounds):
        for name, of_shape in times.items():
            for side in sorted(SIDES, reverse=bool(turn % 2)):
                step_time_s = _step_time_s(SHAPES[name], device, SIDES[side])
                if step_time_s is None:
                    return 1
                of_shape[side].append(step_time_s)
    figures = {}
    for name, of_shape in times.items():
        ratio = paired_ratio(of_shape["default"], of_shape["kept"])
        figures |= {f"{name}.ratio": ratio.value, f"{name}.low": ratio.low, f"{name}.high": ratio.high}
        n_layer, n_embd, vocabulary, batch_size, length = SHAPES[name]
        print(f"{n_layer} × {n_embd}, vocabulary {vocabulary}, {batch_size} × {length} tokens: {ratio}")
    if options.json:
        conditions = {"threads": options.threads, "rounds": options.rounds, "platform": platform.platform()}
        report = {"figures": figures, "targets": {}, "met": {}, "conditions": conditions}
        write_json(options.json, report)
    return 0


def _step_time_s(shape: tuple, device: DeviceSpec, environment: dict[str, str] | None) -> float | None:
    """The median step time in a process of its own; None, with the reason told, if there is none."""
    n_layer, n_embd, vocabulary, batch_size, length = shape
    asked = {"architecture": "gpt2", "n_layer": n_layer, "n_head": n_embd // HEAD, "n_embd": n_embd, "bias": False}
    model = complete_shape(asked, vocabulary, length)
    step = StepSpec(batch_size=batch_size, precision="fp32", execution="eager")
    measure = MeasureSpec(min_samples=5, target_interval=0.02, max_seconds=2.0, timeout_s=120.0)
    arguments = {"device": to_json(device), "optimizer": to_json(OPTIMIZER), "measure": to_json(measure)}
    arguments |= {"shapes": [(to_json(model), to_json(step))]}
    heard: list[dict] = []
    target = "benchmarks.prediction_sides:measure_shapes"
    outcome = run_isolated(
        target, arguments, device=device, timeout_s=120.0, on_message=heard.append, environment=environment
    )
    found = next((message["step_time_s"] for message in heard if "step_time_s" in message), None)
    if found is None:
        print(f"{shape}: {outcome.status} {outcome.reason}", file=sys.stderr)
    return found


def _parse() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
