"""How a step is carried out beyond plain PyTorch: compiled by torch.compile, captured as a CUDA graph.

Both change speed and rounding, never the mathematics; what a device cannot do is `Unavailable`, never run eagerly
under another name.
"""

import functools
import os
import shutil
from collections.abc import Callable

import torch
from torch import Tensor

from workflow_scripts.lib.frames import roomy
from workflow_scripts.lib.model import Decoder
from workflow_scripts.lib.outcome import Unavailable, is_out_of_memory
from workflow_scripts.lib.specs import Execution

# The compiler's option to read once what both gradients of a normalisation need, its input's over rows and its weight's
# over columns, and to find them in one kernel. GPT-2 124M is 0.8 % faster with it on an H200; but with dropout's
# backward pass in that kernel too, it takes 59 µs where two take 36 (16,384 × 384 in 16 bits).
MIX_ORDER_REDUCTION = "mix_order_reduction"
N_PARTS = 3  # graphs of a compiled loss with checkpointing: embedding, block, and what follows the last block
WARM_UP_STEPS = 3  # before a capture: torch's CUDA graphs notes, "whole-network capture"


def require(execution: Execution, device: torch.device) -> None:
    """Checks, before anything is built, that this execution exists here.

    Raises:
        Unavailable: with what is missing.
    """
    if execution == "eager":
        return
    if execution == "graphed" and device.type != "cuda":
        raise Unavailable(f"graphed captures a CUDA graph, which {device.type} does not have")
    if not torch._dynamo.is_dynamo_supported():
        raise Unavailable("torch.compile does not support this Python or platform")
    if device.type == "cpu":
        _require_cpp_compiler()
    if device.type == "cuda":
        _require_triton()


def _require_cpp_compiler() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        wanted = os.environ.get("CXX", "g++")
        raise Unavailable(f"no C++ compiler: {wanted} was not found; install one (g++, or clang on macOS)") from error


def _require_triton() -> None:
    from torch.utils._triton import has_triton

    if not has_triton():
        raise Unavailable("torch.compile needs Triton on CUDA, and Triton is missing or too new for this GPU")
    if os.environ.get("CC") is None and not any(shutil.which(name) for name in ("gcc", "clang", "cc")):
        raise Unavailable("no C compiler: Triton needs gcc or clang for its launchers")


def compile_loss(decoder: Decoder) -> Callable[[Tensor, Tensor], Tensor]:
    """Compiles a model's loss for one fixed shape; compilation happens at the first call.

    In one graph; with checkpointing in `N_PARTS`, of which all blocks share one. In a single graph the compiler fuses
    what it computes again for one block with its like in others, ahead of its use. On a CPU a step then takes 4 to 12 %
    less time and up to 1.8 times the memory, and saving memory is what checkpointing is for: see
    `benchmarks/checkpointed.py`.
    """
    from torch._inductor.config import triton

    _make_room_for_backward(next(decoder.parameters()).device)
    options = {}
    if decoder.attention == "math":
        # The compiler recognises attention spelled out in plain operators, and puts a fused kernel in its place: with
        # that on, `math` would be asked for and something else timed.
        options["pattern_matcher"] = False
    if decoder.shape.dropout > 0 and hasattr(triton, MIX_ORDER_REDUCTION):
        options[f"triton.{MIX_ORDER_REDUCTION}"] = False
    compiled = functools.partial(torch.compile, fullgraph=True, dynamic=False, options=options)
    if not decoder.checkpointing:
        return compiled(decoder.loss)
    embed, through, loss_of = compiled(decoder.embed), compiled(decoder.through), compiled(decoder.loss_of)

    def loss(tokens: Tensor, targets: Tensor) -> Tensor:
        x = embed(tokens)
        for block in decoder.blocks:
            x = through(block, x)
        return loss_of(x, targets)

    return loss


def _make_room_for_backward(device: torch.device) -> None:
    """Makes room for frames in the thread where torch runs a GPU's backward passes; a CPU's run in the calling one.

    A thread keeps its first chunk of frames, so the first frame there must be a large one: nothing else of Python may
    have run there, which is compiled code, hooks, and functions of autograd.
    """
    if device.type != "cpu":
        number = torch.zeros((), device=device, requires_grad=True)
        total = number + number
        total.register_hook(_first_frame)
        total.backward()


@roomy
def _first_frame(gradient: Tensor) -> None:
    """Leaves a gradient as it is."""


def compilations(checkpointing: bool) -> dict[str, int | float | None]:
    """Reads torch's counters of this process, which has compiled one step, with or without checkpointing.

    Returns:
        `n_graphs` compiled, `n_recompiles` among them, and `compile_s`, None where nothing was compiled.
    """
    from torch._dynamo.utils import calculate_time_spent, counters

    n_graphs = counters["stats"]["unique_graphs"]
    return {
        "n_graphs": n_graphs,
        "n_recompiles": max(n_graphs - (N_PARTS if checkpointing else 1), 0),
        "compile_s": calculate_time_spent()["total_wall_time"] if n_graphs else None,
    }


class CapturedPhases:
    """Phases of a step, each captured as one CUDA graph at its first replay and afterwards launched as a whole.

    A capture needs a few runs before it (libraries initialise, the compiler compiles, optimizers create their state).
    Those runs must not count, so the state they change is saved before and put back after them, in place: the graph
    remembers addresses.

    Args:
        device: the GPU.
        save: keeps a copy of everything that a phase changes, off the device, and returns what puts it back.
    """

    def __init__(self, device: torch.device, save: Callable[[], Callable[[], None]]):
        self.device, self.save = device, save
        self.stream = torch.cuda.Stream(device)
        self.graphs: dict[str, torch.cuda.CUDAGraph] = {}

    def replay(self, phase: Callable[[], None]) -> None:
        """Runs a phase, a bound method known by its name."""
        if phase.__name__ not in self.graphs:
            self.graphs[phase.__name__] = self._capture(phase)
        self.graphs[phase.__name__].replay()

    def forget(self) -> None:
        """Drops all graphs: for when the tensors that they write to have been replaced."""
        self.graphs.clear()

    def _capture(self, phase: Callable[[], None]) -> torch.cuda.CUDAGraph:
        put_back = self.save()
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        # Warm-up and capture share one side stream: nodes of autograd that accumulate gradients stay on the stream on
        # which they were made, and work on a stream that is not being captured would break the capture.
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UP_STEPS):
                phase()
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        put_back()
        return self._record(phase)

    def _record(self, phase: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        try:
            # The generators of dropout are registered by torch itself: each replay draws on from where the last ended.
            with torch.cuda.graph(graph, stream=self.stream):
                phase()
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise Unavailable(f"the step cannot be captured as a CUDA graph: {error}") from error
        return graph
