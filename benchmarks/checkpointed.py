"""Shows what compiling a checkpointed step block by block costs and saves, against one graph of the whole model.

    python benchmarks/checkpointed.py [--device cpu|cuda] [--rounds 3] [--threads N] [--json FILE]

In each round every shape is compiled and measured twice, each time in a process of its own: in one graph, and as Assay
does (`execution.compile_loss`); every second round the other way round. Of the step time, of the peak of what tensors
take in a steady step and of the time to compile it gives how many times more the one graph takes.
`--json FILE` writes {"figures", "targets", "met", "conditions"}; there are no targets.
"""

import argparse
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # in place of this folder, whose `statistics` is not the standard one

import numpy as np  # noqa: E402
import torch  # noqa: E402

from benchmarks.options import parser_of  # noqa: E402
from benchmarks.paired import paired_ratio  # noqa: E402
from benchmarks.prediction import OPTIMIZER  # noqa: E402
from workflow_scripts.lib import step as step_module  # noqa: E402
from workflow_scripts.lib.device_timing import clock_of  # noqa: E402
from workflow_scripts.lib.execution import compile_loss  # noqa: E402
from workflow_scripts.lib.isolation import run_isolated  # noqa: E402
from workflow_scripts.lib.memory_probe import count_on_cuda, trace_on_cpu  # noqa: E402
from workflow_scripts.lib.model import Decoder  # noqa: E402
from workflow_scripts.lib.records import write_json  # noqa: E402
from workflow_scripts.lib.specs import DeviceSpec, MeasureSpec, StepSpec, from_json, to_json  # noqa: E402
from workflow_scripts.lib.study import complete_shape  # noqa: E402
from workflow_scripts.lib.timing import sample_steps  # noqa: E402

# Architecture, layers, heads, width, dropout, vocabulary, batch, context, for each type of device.
SHAPES = {
    "cpu": [("gpt2", 6, 4, 128, 0.0, 65, 4, 128), ("gpt2", 6, 1, 64, 0.1, 256, 4, 512),
            ("llama", 4, 4, 192, 0.0, 1024, 4, 256)],
    "cuda": [("gpt2", 12, 12, 768, 0.0, 50304, 8, 1024), ("gpt2", 6, 6, 384, 0.2, 65, 64, 256),
             ("llama", 16, 16, 1024, 0.0, 32000, 8, 1024)],
}  # fmt: skip
PRECISIONS = {"cpu": "fp32", "cuda": "bf16"}
QUANTITIES = {"step_time_s": "step time", "peak_bytes": "peak", "compile_s": "time to compile"}
SIDES = ("one_graph", "by_blocks")
N_BATCHES = 100


def main() -> int:
    """Measures the rounds; returns 1 if a step could not be measured."""
    options = _parse()
    index = 0 if options.device == "cuda" else None
    device = DeviceSpec(id=options.device, type=options.device, threads=options.threads, index=index)
    figures = {}
    for shape in SHAPES[options.device]:
        found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
        for turn in range(options.rounds):
            for side in sorted(SIDES, reverse=bool(turn % 2)):
                asked = {"device": to_json(device), "shape": shape, "side": side}
                outcome = run_isolated("benchmarks.checkpointed:measure", asked, device=device, timeout_s=600.0)
                if outcome.result is None:
                    print(f"{shape}: {outcome.status} {outcome.reason}", file=sys.stderr)
                    return 1
                found[side].append(outcome.result)
        name = "_".join(map(str, shape))
        print(name)
        for key, label in QUANTITIES.items():
            ratio = paired_ratio(*([one[key] for one in found[side]] for side in SIDES))
            figures |= {f"{name}.{key}.ratio": ratio.value, f"{name}.{key}.low": ratio.low}
            figures[f"{name}.{key}.high"] = ratio.high
            print(f"  {label}: one graph takes {ratio}", flush=True)
    if options.json:
        conditions = {"device": options.device, "threads": options.threads, "rounds": options.rounds,
                      "torch": torch.__version__, "platform": platform.platform()}  # fmt: skip
        write_json(options.json, {"figures": figures, "targets": {}, "met": {}, "conditions": conditions})
    return 0


def measure(arguments: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> dict[str, float]:
    """Measures a shape in this process: `step_time_s`, `peak_bytes` (allocated, of a steady step), `compile_s`.

    Args:
        arguments: `device` (as JSON), `shape` (a row of `SHAPES`), `side`.
        send: takes messages; none is sent.
    """
    device = from_json(DeviceSpec, arguments["device"])
    architecture, n_layer, n_head, n_embd, dropout, vocabulary, batch_size, length = arguments["shape"]
    asked = {"architecture": architecture, "n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, "dropout": dropout}
    model = complete_shape(asked, vocabulary, length)
    precision = PRECISIONS[device.type]
    spec = StepSpec(batch_size=batch_size, precision=precision, execution="compiled", checkpointing=True)
    if arguments["side"] == "one_graph":
        step_module.compile_loss = _in_one_graph
    tokens = np.zeros(20 * length, dtype=np.uint16)
    probe = trace_on_cpu if device.type == "cpu" else count_on_cuda
    where = torch.device(device.torch_name)
    step, found = probe(
        lambda: step_module.TrainStep.build(model, spec, OPTIMIZER, device, tokens, N_BATCHES, 0), where
    )
    lasting = MeasureSpec(min_samples=5, target_interval=0.01, max_seconds=5.0, timeout_s=300.0)
    samples = sample_steps(step.run, step.synchronise, clock=clock_of(step.device), measure=lasting).samples_s
    return {
        "step_time_s": float(np.median(samples)),
        "peak_bytes": max(found["phases"].values()),
        "compile_s": step.observed()["compile_s"],
    }


def _in_one_graph(decoder: Decoder) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Compiles the loss as if there were no checkpointing. The graph is traced at its first call: with it."""
    decoder.checkpointing = False
    loss = compile_loss(decoder)
    decoder.checkpointing = True
    return loss


def _parse() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
