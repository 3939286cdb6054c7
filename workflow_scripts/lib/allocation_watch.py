"""Traces every allocation of a device, and sees which operator of which layer gave which tensor.

The trace is the memory history of CUDA's caching allocator, or on a CPU the memory events of torch's profiler. Names
come from a dispatch mode, which sees each operator below autograd, and from hooks at the modules; neither holds a
tensor. In a backward pass the module is that of the forward operator whose gradient is computed, by the sequence
numbers of autograd.
"""

import dataclasses
import gc
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity
from torch.utils._python_dispatch import TorchDispatchMode

from workflow_scripts.lib import allocation_trace
from workflow_scripts.lib.allocation_trace import Call, Event

MARK = "place in the trace: "
MAX_ENTRIES = 2_000_000  # of CUDA's history; a step has some thousand


class Trace(Protocol):
    """A running trace: `mark` gives a token of the moment, and after `stop`, `place` its place."""

    method: str
    events: list[Event]

    def mark(self) -> int: ...
    def stop(self, snapshot: Path | None) -> None: ...
    def place(self, token: int) -> int: ...


class ProfilerTrace:
    """The memory events of torch's CPU allocator, from now on."""

    method = "torch.profiler's memory events of the CPU allocator"

    def __init__(self) -> None:
        gc.collect()  # what was allocated before would be seen freed
        self.events: list[Event] = []
        self._places: dict[int, int] = {}
        self._n = 0
        self._profiler = torch.profiler.profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        self._profiler.start()

    def mark(self) -> int:
        self._n += 1
        with torch._C._profiler._RecordFunctionFast(f"{MARK}{self._n}"):
            return self._n

    def stop(self, snapshot: Path | None) -> None:
        self._profiler.stop()
        tree = self._profiler.profiler.kineto_results.experimental_event_tree()
        for event in sorted(_flattened(tree), key=lambda event: event.start_time_ns):
            if event.name == "[memory]":
                self.events.append(Event(event.extra_fields.ptr, event.extra_fields.alloc_size))
            elif event.name.startswith(MARK):
                self._places[int(event.name.removeprefix(MARK))] = len(self.events)

    def place(self, token: int) -> int:
        return self._places[token]


def _flattened(events: Iterable[Any]) -> Iterator[Any]:
    stack = list(events)
    while stack:
        event = stack.pop()
        yield event
        stack.extend(event.children)


class HistoryTrace:
    """The history of torch's CUDA allocator, from now on; a token is the number of allocations and frees so far."""

    method = "the memory history of torch's CUDA allocator; blocks as they were asked for, before they are rounded up"

    def __init__(self, device: torch.device) -> None:
        torch.cuda.init()
        gc.collect()
        self.events: list[Event] = []
        self._device = torch.device("cuda", device.index or 0)
        self._before = 0
        # Stacks are of no use to us; the viewer shows them.
        torch.cuda.memory._record_memory_history(
            "all", context="alloc", stacks="python", max_entries=MAX_ENTRIES, clear_history=True
        )
        self._before = self.mark()

    def mark(self) -> int:
        counts = torch.cuda.memory_stats_as_nested_dict(self._device).get("allocation", {}).get("all", {})
        return counts.get("allocated", 0) + counts.get("freed", 0) - self._before

    def stop(self, snapshot: Path | None) -> None:
        torch.cuda.synchronize(self._device)
        expected = self.mark()
        taken = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(None)
        if snapshot is not None:
            snapshot.parent.mkdir(parents=True, exist_ok=True)
            partial = snapshot.with_name(f".{snapshot.name}.partial")
            with partial.open("wb") as file:
                pickle.dump(taken, file)
            partial.replace(snapshot)
        self.events = events_of_history(taken["device_traces"][self._device.index])
        if len(self.events) != expected:
            raise RuntimeError(
                f"the memory history has {len(self.events)} allocations and frees, the allocator counted {expected}: "
                "places in it would be wrong"
            )

    def place(self, token: int) -> int:
        return token


def events_of_history(entries: Iterable[dict[str, Any]]) -> list[Event]:
    """Allocations and frees of one device of a snapshot, in order.

    A block counts until its free is asked for, as in the allocator's counter of allocated bytes; segments, and when a
    stream has let a block go, are other questions.
    """
    kinds = {"alloc": 1, "free_requested": -1}
    return [Event(e["addr"], kinds[e["action"]] * e["size"]) for e in entries if e["action"] in kinds]


def tensor_of(tensor: Tensor) -> allocation_trace.Tensor:
    """What is told of a tensor."""
    storage = tensor.untyped_storage()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return allocation_trace.Tensor(
        storage.data_ptr(), storage.nbytes(), tuple(tensor.shape), dtype, tensor.element_size()
    )


class Watch(TorchDispatchMode):
    """Notes each operator while it is entered, with its module and what it gave.

    Args:
        trace: where marks go.
        decoder: whose modules are told by their paths.
    """

    def __init__(self, trace: Trace, decoder: nn.Module):
        super().__init__()
        self.trace, self.forward = trace, True
        self.calls: list[Call] = []  # with tokens for places
        self._modules: list[str] = [""]
        self._module_of: dict[int, str] = {}
        self._parameters = {parameter.data_ptr() for parameter in decoder.parameters()}
        self._hooks = []
        for name, module in decoder.named_modules():
            self._hooks.append(module.register_forward_pre_hook(self._entering(name)))
            self._hooks.append(module.register_forward_hook(self._leaving, always_call=True))

    def close(self) -> None:
        """Takes the hooks off."""
        for hook in self._hooks:
            hook.remove()

    def _entering(self, name: str) -> Any:
        return lambda *_: self._modules.append(name)

    def _leaving(self, *_: Any) -> None:
        # Gives nothing back: what a hook gives is held. It is called, too, where recomputing ends within a module.
        self._modules.pop()

    def _module(self) -> str:
        node = torch._C._current_autograd_node()
        if node is None or self._modules[-1]:  # within a backward pass a checkpointed block runs forward once more
            module = self._modules[-1]
            if self.forward:
                self._module_of.setdefault(torch.autograd._get_sequence_nr() - 1, module)
            return module
        return self._module_of.get(node._sequence_nr(), "")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        module, entered = self._module(), self.trace.mark()
        given = func(*args, **(kwargs or {}))
        left = self.trace.mark()
        outputs = given if isinstance(given, list | tuple) else (given,)
        name = func.name().removeprefix("aten::").partition(".")[0]
        call = Call(
            entered=entered,
            left=left,
            operator=name,
            module=module,
            of_parameter=name == "_to_copy" and args[0].data_ptr() in self._parameters,
            outputs=tuple(tensor_of(output) for output in outputs if isinstance(output, Tensor)),
        )
        self.calls.append(call)
        return given

    def calls_of(self) -> list[Call]:
        """The operators, with places for tokens; only after the trace has stopped."""
        place = self.trace.place
        return [dataclasses.replace(call, entered=place(call.entered), left=place(call.left)) for call in self.calls]
