"""What a probe is asked to do: one frozen value a kind.

A probe answers one question about a device by a measurement of its own, outside the grid. All of this is plain data.
"""

import dataclasses
import itertools
from typing import Any, Literal

from workflow_scripts.lib.specs import (
    CellSpec,
    DeviceSpec,
    MemorySpec,
    Mode,
    ModelShape,
    OptimizerSpec,
    Precision,
    StepSpec,
    from_json,
)

AttentionBackend = Literal["math", "efficient", "flash", "cudnn", "flex"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionProbe:
    """Attention alone, forward and backward: every head size × context × precision × backend × compiled or not.

    Each direction is timed `passes` times, or for `max_seconds`.
    """

    id: str
    device: DeviceSpec
    batch_size: int
    n_head: int
    head_sizes: tuple[int, ...]
    sequence_lengths: tuple[int, ...]
    precisions: tuple[Precision, ...]
    backends: tuple[AttentionBackend, ...]
    compiled: tuple[bool, ...]
    passes: int
    max_seconds: float
    timeout_s: float
    kind: Literal["attention"] = "attention"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccumulationProbe:
    """A constant added up `terms` times, in each format of terms and sum."""

    id: str
    device: DeviceSpec
    constant: float
    terms: int
    timeout_s: float
    kind: Literal["accumulation"] = "accumulation"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutocastProbe:
    """The first `n_steps` steps of one model in several precisions, each beside fp32; `name` is the model's."""

    id: str
    device: DeviceSpec
    name: str
    model: ModelShape
    batch_size: int
    precisions: tuple[Precision, ...]
    optimizer: OptimizerSpec
    n_steps: int
    timeout_s: float
    kind: Literal["autocast"] = "autocast"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClocksProbe:
    """The same step under three clocks, for one model at several context lengths (one shape each)."""

    id: str
    device: DeviceSpec
    name: str
    models: tuple[ModelShape, ...]
    step: StepSpec
    modes: tuple[Mode, ...]
    optimizer: OptimizerSpec
    n_steps: int
    timeout_s: float
    kind: Literal["clocks"] = "clocks"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OperatorsProbe:
    """Where the time of one model's forward, forward and backward, and whole step goes, operator by operator."""

    id: str
    device: DeviceSpec
    name: str
    model: ModelShape
    step: StepSpec
    modes: tuple[Mode, ...]
    optimizer: OptimizerSpec
    warmup_steps: int
    n_steps: int
    timeout_s: float
    kind: Literal["operators"] = "operators"


@dataclasses.dataclass(frozen=True, kw_only=True)
class IsolationProbe:
    """Cells of the grid measured once more: all in one process, in this order, and each in a process of its own."""

    id: str
    device: DeviceSpec
    cells: tuple[CellSpec, ...]
    timeout_s: float
    kind: Literal["isolation"] = "isolation"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AllocationsProbe:
    """What single steps of a model, called `name`, allocate on the heap: how often, and how many bytes.

    `treated` has one step for each treatment of its training, whose name is its id.
    """

    id: str
    device: DeviceSpec
    name: str
    treated: tuple[MemorySpec, ...]
    warmup_steps: int
    n_steps: int
    timeout_s: float
    kind: Literal["allocations"] = "allocations"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryProbe:
    """What passes allocate and free over their course, for one model at several contexts and in several precisions."""

    id: str
    device: DeviceSpec
    name: str
    models: tuple[ModelShape, ...]
    steps: tuple[StepSpec, ...]
    modes: tuple[Mode, ...]
    optimizer: OptimizerSpec
    timeout_s: float
    kind: Literal["memory"] = "memory"


Probe = (
    AttentionProbe
    | AccumulationProbe
    | AutocastProbe
    | ClocksProbe
    | OperatorsProbe
    | IsolationProbe
    | AllocationsProbe
    | MemoryProbe
)
KINDS: dict[str, type] = {
    "attention": AttentionProbe,
    "accumulation": AccumulationProbe,
    "autocast": AutocastProbe,
    "clocks": ClocksProbe,
    "operators": OperatorsProbe,
    "isolation": IsolationProbe,
    "allocations": AllocationsProbe,
    "memory": MemoryProbe,
}


def probe_from_json(values: dict[str, Any]) -> Probe:
    """Builds a probe from plain JSON values, by its kind."""
    return from_json(KINDS[values["kind"]], values)


def parts(probe: dict[str, Any]) -> list[dict[str, Any]]:
    """Cuts a probe, as JSON, into what each gets a process of its own: what ends one leaves the others alone."""
    if probe["kind"] == "attention":
        pairs = [(backend, compiled) for backend in probe["backends"] for compiled in probe["compiled"]]
        return [{**probe, "backends": [backend], "compiled": [compiled]} for backend, compiled in pairs]
    if probe["kind"] == "isolation":
        return [probe, *({**probe, "cells": [cell]} for cell in probe["cells"])]
    if probe["kind"] == "memory":  # a trace sees all that its process allocates
        asked = itertools.product(probe["models"], probe["steps"], probe["modes"])
        return [{**probe, "models": [model], "steps": [step], "modes": [mode]} for model, step, mode in asked]
    if probe["kind"] == "allocations":
        return [{**probe, "treated": [treated]} for treated in probe["treated"]]
    return [probe]
