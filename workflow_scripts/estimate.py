"""Answers for one model what a training step takes: parameters, FLOPs, memory, and time on the devices of a study.

Usage: python -m workflow_scripts.estimate --model gpt2-124m --batch-size 8 --precision bf16 [--study laptop] [--json]
Exit code: 0 with an answer, 2 where the question has a fault, which is said in one line.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workflow_scripts.lib.known_shapes import KNOWN_SHAPES
from workflow_scripts.lib.question_options import PLAIN, parser
from workflow_scripts.lib.shape_question import answer, as_json, as_text, check_shape
from workflow_scripts.lib.specs import OptimizerSpec, StepSpec
from workflow_scripts.lib.study import complete_shape

ROOT = Path(__file__).resolve().parents[1]


def main(options: Sequence[str] | None = None) -> int:
    """Answers on stdout; a fault of the question ends it with one line on stderr."""
    arguments = parser()
    given = arguments.parse_args(options)
    asked: dict[str, Any] = {"architecture": "gpt2", "vocab_size": 50257, "sequence_length": 1024}
    asked |= KNOWN_SHAPES.get(given.model, {})
    for name in ("architecture", "n_layer", "n_head", "n_embd", "n_inner", "vocab_size", "sequence_length"):
        asked |= {name: getattr(given, name)} if getattr(given, name) is not None else {}
    missing = [name for name in ("n_layer", "n_head", "n_embd") if name not in asked]
    if missing:
        options_of = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        arguments.error(f"the shape lacks {options_of}: give it, or a known --model")
    try:
        shape = complete_shape(asked, asked["vocab_size"], asked["sequence_length"])
        step = StepSpec(batch_size=given.batch_size, precision=given.precision, execution=given.execution,
                        accumulation=given.accumulation, checkpointing=given.checkpointing)  # fmt: skip
        optimizer = OptimizerSpec(name=given.optimizer, **PLAIN)
        check_shape(shape, step, optimizer)
        told = answer(shape, step, optimizer, given.study, ROOT)
    except ValueError as fault:
        arguments.error(str(fault))
    sys.stdout.write((as_json(told) if given.json else as_text(told)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
