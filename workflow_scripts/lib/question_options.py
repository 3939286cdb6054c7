"""The command line on which the cost of one shape is asked."""

import argparse
from typing import NoReturn, get_args

from workflow_scripts.lib.known_shapes import KNOWN_SHAPES
from workflow_scripts.lib.shape_question import DEFAULT_STUDY
from workflow_scripts.lib.specs import Architecture, Execution, OptimizerName, Precision

# No step costs more for its rate or its decay.
PLAIN = {"learning_rate": 1e-4, "min_learning_rate": 1e-4, "warmup_steps": 0, "decay_steps": 1, "schedule": "constant",
         "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "momentum": 0.9, "grad_clip": 1.0}  # fmt: skip


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


MOST, MOST_LAYERS = 10**7, 10**4  # beyond what anyone trains


def positive(text: str, most: int = MOST) -> int:
    """Reads a count of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    if int(text) > most:
        raise argparse.ArgumentTypeError(f"{text} is more than {most:,}, the most that is answered for")
    return int(text)


def layers(text: str) -> int:
    """Reads a number of layers, each of which is gone through."""
    return positive(text, MOST_LAYERS)


def parser() -> argparse.ArgumentParser:
    """Builds the command line."""
    described = (
        "What a training step of one model takes: parameters, FLOPs, memory by kind, step time on known devices."
    )
    ended = "Memory is what tensors hold. Step times come from the devices of one study, with 95 % intervals. "
    ended += "Example: python -m workflow_scripts.estimate --model gpt2-124m --batch-size 8 --precision bf16"
    arguments = _Parser(prog="estimate", description=described, epilog=ended)
    shape = arguments.add_argument_group(
        "the model", "a known one, or its shape; what is given wins over the known one's"
    )
    shape.add_argument("--model", choices=KNOWN_SHAPES, help="a known model, with its vocabulary and context")
    shape.add_argument("--architecture", choices=get_args(Architecture), help="gpt2 (default) or llama")
    shape.add_argument("--n-layer", type=layers, metavar="N", help="decoder blocks")
    shape.add_argument("--n-head", type=positive, metavar="N", help="attention heads per block")
    shape.add_argument("--n-embd", type=positive, metavar="N", help="width of the residual stream")
    shape.add_argument(
        "--n-inner", type=positive, metavar="N", help="width of the MLP (default: as its architecture has)"
    )
    shape.add_argument("--vocab-size", type=positive, metavar="N", help="entries of the vocabulary (default: 50257)")
    shape.add_argument("--sequence-length", type=positive, metavar="N", help="tokens per sequence (default: 1024)")
    step = arguments.add_argument_group("the step")
    step.add_argument("--batch-size", type=positive, default=8, metavar="N", help="sequences per step (default: 8)")
    step.add_argument("--accumulation", type=positive, default=1, metavar="N", help="micro-batches of it (default: 1)")
    step.add_argument("--checkpointing", action="store_true", help="recompute activations in the backward pass")
    step.add_argument("--precision", choices=get_args(Precision), default="fp32", help="default: fp32")
    step.add_argument("--execution", choices=get_args(Execution), default="eager", help="default: eager")
    step.add_argument("--optimizer", choices=get_args(OptimizerName), default="adamw", help="default: adamw")
    arguments.add_argument(
        "--study",
        metavar="NAME",
        help=f"predict step times on the devices of results/NAME, or recorded for it (default: {DEFAULT_STUDY})",
    )
    arguments.add_argument("--json", action="store_true", help="answer in JSON: seconds, bytes, FLOPs")
    return arguments
