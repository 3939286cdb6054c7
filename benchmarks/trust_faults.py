"""Faults, each made on purpose and shown to Assay, to torch.utils.benchmark and to nanoGPT's way of timing.

Faults of time happen on a simulated device, so that every tool meets exactly the same steps; Assay's part is the real
one: its sampler, its tables, its audit, its self-check. Faults of arithmetic happen in a real step on the CPU. A tool
that has nothing to notice a fault with is still told whether the number that it prints is right.
"""

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import pandas as pd
import torch

from benchmarks.simulated_device import READ_S, STEP_S, Machine, nanogpt_way, steps, torch_timer
from workflow_scripts.lib import correctness
from workflow_scripts.lib.audit.apply import audit_table
from workflow_scripts.lib.audit.own import material
from workflow_scripts.lib.records import RECORD_VERSION
from workflow_scripts.lib.self_check import check_clocks
from workflow_scripts.lib.specs import CellSpec, DeviceSpec, MeasureSpec, ModelShape, StepSpec, to_json
from workflow_scripts.lib.step import TrainStep
from workflow_scripts.lib.tables import CELL_COLUMNS, cell_row
from workflow_scripts.lib.timing import HostClock, Samples, sample_steps

Said = Literal["noticed", "right", "wrong", "unaware", "does not look"]
RIGHT = 0.05  # a number this near to the truth is right all the same
MEASURE = MeasureSpec(min_samples=10, target_interval=0.02, max_seconds=4.0, timeout_s=60.0)  # the default study's
CPU = DeviceSpec(id="cpu", type="cpu", threads=1)
SHAPE = ModelShape(
    architecture="gpt2", n_layer=2, n_head=2, n_embd=32, n_inner=128, vocab_size=40, sequence_length=32, bias=False
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Word:
    """What a tool has to say of a fault: `noticed` it; gives a number that is `right` or `wrong` without a warning; is
    `unaware` where no one number would be right; or `does not look` there. `text` says it in its own terms."""

    said: Said
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault and what each tool says of it."""

    name: str
    what: str
    assay: Word
    torch_timer: Word
    nanogpt: Word


def all_faults() -> list[Fault]:
    """Makes every fault and lets every tool look."""
    return [
        timed("none", "nothing is wrong: nobody should notice anything", lambda n: 1.0, STEP_S),
        unsynchronised(),
        timed("drift", "steps grow 15 % slower over 40 steps", lambda n: 1 + 0.15 * min(n, 40) / 40, None),
        timed("two_modes", "every ten steps the clock changes by 12 %", lambda n: 1.0 + 0.12 * (n // 10 % 2), None),
        timed("cold_first_step", "the first step takes 14 times as long", lambda n: 14.0 if n == 0 else 1.0, STEP_S),
        ignored_flag(),
        scaled_loss(),
        contaminated_peak(),
        leaking_mask(),
    ]


# Faults of time.


def unsynchronised() -> Fault:
    """A device whose synchronisation returns at once."""

    def broken() -> Machine:
        return Machine(steps(lambda n: 1.0), synchronises=False)

    machine = broken()
    checked = check_clocks(machine.run, machine.synchronise, {"host": HostClock(machine.read, READ_S)})
    timer, nanogpt = torch_timer(broken(), MEASURE.max_seconds), nanogpt_way(broken())
    return Fault(
        name="unsynchronised",
        what="synchronising the device returns at once",
        assay=Word(said="wrong" if checked["synchronised"] else "noticed", text=checked["reason"]),
        torch_timer=judge(timer, STEP_S),
        nanogpt=judge(nanogpt, STEP_S),
    )


def timed(name: str, what: str, shape: Callable[[int], float], truth_s: float | None) -> Fault:
    """A fault of step times; `truth_s` is what a number should be, None where no one number is right."""
    machine = Machine(steps(shape))
    clock = HostClock(machine.read, READ_S)
    samples = sample_steps(machine.run, machine.synchronise, clock=clock, measure=MEASURE)
    row, findings = audited(record_of(samples=samples))
    found = [f"{f.rule}: {f.message}" for f in findings if f.rule in ("drift", "two_modes")]
    if truth_s is not None and row["first_step_s"] > 2 * row["step_time_s"]:
        found.append(
            f"first step {row['first_step_s'] * 1e3:.0f} ms apart, step time {row['step_time_s'] * 1e3:.1f} ms"
        )
    number = (row["step_time_s"], found[0] if found else "")
    return Fault(
        name=name,
        what=what,
        assay=judge(number, truth_s),
        torch_timer=judge(torch_timer(Machine(steps(shape)), MEASURE.max_seconds), truth_s),
        nanogpt=judge(nanogpt_way(Machine(steps(shape))), truth_s),
    )


def judge(number: tuple[float, str], truth_s: float | None) -> Word:
    """Turns a tool's number and its warning into a word."""
    value_s, warning = number
    if warning:
        return Word(said="noticed", text=warning)
    text = f"{value_s * 1e3:.3g} ms"
    if truth_s is None:
        return Word(said="unaware", text=text)
    right = abs(value_s / truth_s - 1) <= RIGHT
    return Word(said="right" if right else "wrong", text=f"{text}, truly {truth_s * 1e3:.3g} ms")


# Faults of arithmetic and memory.

NO_LOOK = Word(said="does not look", text="")


def ignored_flag() -> Fault:
    """bf16 is asked for, and the step computes in fp32."""
    spec = StepSpec(batch_size=4, precision="bf16", execution="eager")
    with mock.patch.object(TrainStep, "autocast", return_value=contextlib.nullcontext()):
        step = correctness.build(SHAPE, spec, CPU)
        step.run()
        observed = step.observed()
    return Fault(
        name="ignored_flag",
        what="bf16 is asked for, fp32 computed",
        assay=noticed(audited(record_of(step=spec, observed=observed))[1], "read_back"),
        torch_timer=NO_LOOK,
        nanogpt=NO_LOOK,
    )


def scaled_loss() -> Fault:
    """Each of several micro-batches counts as if it were the whole batch."""
    build = correctness.build

    def scaled(shape: ModelShape, spec: StepSpec, device: DeviceSpec) -> TrainStep:
        step = build(shape, spec, device)
        step.share.fill_(1.0)
        return step

    with mock.patch.object(correctness, "build", scaled):
        word = probed("micro-batches")
    return Fault(
        name="scaled_loss",
        what="accumulation scales the gradient by the number of micro-batches",
        assay=word,
        torch_timer=NO_LOOK,
        nanogpt=NO_LOOK,
    )


def leaking_mask() -> Fault:
    """Attention sees the future."""
    whole = torch.nn.functional.scaled_dot_product_attention

    def leaking(*inputs: Any, is_causal: bool = False, **options: Any) -> torch.Tensor:
        return whole(*inputs, is_causal=False, **options)

    with mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", leaking):
        word = probed("leaks")
    return Fault(
        name="leaking_mask", what="the causal mask is left out", assay=word, torch_timer=NO_LOOK, nanogpt=NO_LOOK
    )


def contaminated_peak() -> Fault:
    """A small cell's peak, measured on top of what a larger one had left behind in the same process."""
    left, needs = 300_000_000, {8: 320_000_000, 2: 90_000_000}
    cells = [record_of(batch_size=8, peak=needs[8]), record_of(batch_size=2, peak=left + needs[2])]
    return Fault(
        name="contaminated_peak",
        what="a small cell's peak counts what a larger one left behind",
        assay=noticed(audited(*cells)[1], "memory_falls"),
        torch_timer=NO_LOOK,
        nanogpt=NO_LOOK,
    )


def probed(part: str) -> Word:
    """What the probes of correctness say of a failure whose message holds `part`."""
    spec = StepSpec(batch_size=correctness.BATCH, precision="fp32", execution="eager")
    failures = correctness.check_architecture("gpt2", spec, CPU, SHAPE.vocab_size)["failures"]
    found = [failure for failure in failures if part in failure]
    return Word(said="noticed", text=found[0]) if found else Word(said="unaware", text="; ".join(failures))


def noticed(findings: list[Any], rule: str) -> Word:
    found = [f"{finding.rule}: {finding.message}" for finding in findings if finding.rule == rule]
    return Word(said="noticed", text=found[0]) if found else Word(said="unaware", text="")


def record_of(
    *,
    samples: Samples | None = None,
    step: StepSpec | None = None,
    batch_size: int = 4,
    peak: int | None = None,
    observed: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A cell's record, as Assay writes it."""
    step = step or StepSpec(batch_size=batch_size, precision="fp32", execution="eager")
    device = CPU if peak is None else DeviceSpec(id="cuda0", type="cuda", threads=1, index=0)
    cell = CellSpec(
        id=f"cell-b{step.batch_size}",
        name="tiny",
        base=f"cell-b{step.batch_size}",
        device=device,
        model=SHAPE,
        step=step,
        optimizer=correctness.OPTIMIZER,
        mode="step",
        measure=MEASURE,
        process=1,
        fresh=False,
        seed=0,
    )
    times = dataclasses.asdict(samples) if samples else {"cold_s": [0.4], "samples_s": [STEP_S] * 10}
    result = {**times, "memory": {"peak_allocated_bytes": peak}, "observed": observed or {}}
    kept = {"record_version": RECORD_VERSION, "kind": "cell", "id": cell.id, "status": "ok", "reason": ""}
    unknown = {"peak_process_bytes": None, "started_at": "", "start": "", "code": "", "commit": None, "environment": {}}
    return {**kept, **unknown, "spec": to_json(cell), "result": result}


def audited(*records: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Takes records the way of every study, into tables and through every rule; gives the last row and all findings."""
    nothing = pd.DataFrame()
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for record in records:
            path = Path(folder) / f"{record['id']}.json"
            path.write_text(json.dumps(record), encoding="utf-8")
            rows.append(cell_row(path))
        tables = material(
            cells=pd.DataFrame(rows, columns=CELL_COLUMNS).infer_objects(),
            **dict.fromkeys(("runs", "processes", "operators", "devices", "ceilings", "recorded"), nothing),
            selection={},
            folder=Path(folder),
        )
    return rows[-1], [finding for table in tables.values() for finding in audit_table(table)]
