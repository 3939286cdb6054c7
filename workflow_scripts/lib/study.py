"""A study: a checked config, resolved into the cells, runs and profiles that it asks for.

Ids are made here and nowhere else, and looked up, never parsed:
    cell  MODEL-bBATCH-tSEQUENCE_LENGTH-PRECISION-EXECUTION[-MODE][-ATTENTION][-pPROCESS]   middle-b8-t256-bf16-eager
    run   NAME[-TREATMENT]-sSEED                                                            wide-sgd-s1
"""

import dataclasses
import functools
import itertools
import random
from collections.abc import Iterator
from typing import Any

from workflow_scripts.lib.counts import default_inner
from workflow_scripts.lib.specs import (
    CellSpec,
    DeviceSpec,
    MeasureSpec,
    MemorySpec,
    ModelShape,
    OptimizerSpec,
    ProfileSpec,
    RunSpec,
    StepSpec,
    from_json,
)
from workflow_scripts.lib.treatments import BASELINE, Treatment, plan_treatments

ROLES = ("wide", "deep", "balanced", "largest")
MATCHED_ROLES = ("wide", "deep", "balanced")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A training that a study asks for on each device: the role or model, what is changed, and the seed."""

    name: str
    treatment: Treatment
    seed: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """A checked study.

    `devices` are the local ones by id, of which `capturing` can run a step as a CUDA graph; `vocab_size` is that of the
    corpus's tokens.
    """

    name: str
    config: dict[str, Any]
    devices: dict[str, DeviceSpec]
    vocab_size: int
    capturing: frozenset[str] = frozenset()

    @property
    def optimizer(self) -> OptimizerSpec:
        return _optimizer(self.config["training"])

    @property
    def timed_optimizer(self) -> OptimizerSpec:
        """The optimizer at one small learning rate, for cells and profiles: no step costs more for its rate."""
        constant = {"learning_rate": 1e-4, "min_learning_rate": 1e-4, "warmup_steps": 0, "decay_steps": 1}
        return dataclasses.replace(self.optimizer, schedule="constant", **constant)

    def training_step(self, device: str) -> StepSpec:
        """The step of the baseline's training on a device."""
        return _step(self.config["training"], device in self.capturing)

    def recorded_step(self, device_type: str) -> StepSpec:
        """The step of the baseline's training on a device of this type elsewhere."""
        return _step(self.config["training"], device_type == "cuda")

    @property
    def trained(self) -> list[str]:
        """Names of what is trained and profiled: roles or models."""
        return self.config["training"]["models"]

    @property
    def needs_selection(self) -> bool:
        return any(name in ROLES for name in self.trained)

    @functools.cached_property
    def treatments(self) -> dict[str, Treatment]:
        """The treatments by name, the baseline first."""
        return plan_treatments(self.config["training"])

    @functools.cached_property
    def runs(self) -> dict[str, PlannedRun]:
        """The runs by id."""
        training = self.config["training"]
        seeds = dict.fromkeys(self.treatments, training["treatment_seeds"] or training["seeds"])
        seeds["baseline"] = training["seeds"]
        planned = [
            PlannedRun(name=name, treatment=treatment, seed=seed)
            for name, (key, treatment) in itertools.product(self.trained, self.treatments.items())
            for seed in seeds[key]
        ]
        return {_run_id(run): run for run in planned}

    def shape(self, name: str, sequence_length: int) -> ModelShape:
        """The complete shape of a named model at a context length."""
        model = next(model for model in self.config["models"] if model["name"] == name)
        return complete_shape(model, self.vocab_size, sequence_length)

    def cells(self, device: str) -> dict[str, CellSpec]:
        """The cells of a device by id, in the shuffled order in which they are measured."""
        cells: dict[str, CellSpec] = {}
        for cell in self._cells(self.devices[device]):  # where products overlap, the one that repeats the cell holds
            if cell.id not in cells or cell.fresh:
                cells[cell.id] = cell
        order = sorted(cells)
        random.Random(self.config["grid"]["order_seed"]).shuffle(order)
        return {cell: cells[cell] for cell in order}

    def combinations(self, device: str) -> list[list[str]]:
        """Every (architecture, precision, execution) that is measured or trained on a device, sorted."""
        used = {(cell.model.architecture, cell.step) for cell in self._cells(self.devices[device])}
        architectures = {model["name"]: model["architecture"] for model in self.config["models"]}
        if self.needs_selection:
            architectures |= dict.fromkeys(ROLES, self.config["selection"]["architecture"])
        for run in self.runs.values():
            step = _step(run.treatment.training(self.config["training"]), device in self.capturing)
            used.add((architectures[run.name], step))
        return sorted([*pair] for pair in {(model, step.precision, step.execution) for model, step in used})

    def memory_cells(self, device: str) -> dict[str, MemorySpec]:
        """The steps whose memory is measured on a device, by the ids of the cells that time them."""
        return {
            cell.id: MemorySpec(
                id=cell.id,
                device=cell.device,
                model=cell.model,
                step=cell.step,
                optimizer=cell.optimizer,
                timeout_s=cell.measure.timeout_s,
                seed=cell.seed,
            )
            for cell in self._cells(self.devices[device], marked="memory")
        }

    def cross_checks(self, device: str) -> dict[str, CellSpec]:
        """The cells of a device that are timed once more, by several timers in one process, by id."""
        return {cell.id: cell for cell in self._cells(self.devices[device], marked="cross_check")}

    def _cells(self, device: DeviceSpec, marked: str | None = None) -> Iterator[CellSpec]:
        """The cells of all products; with `marked`, the first process of each cell of the products that say so."""
        grid = self.config["grid"]
        for product in grid["products"]:
            if (marked and not product.get(marked, False)) or device.type not in product.get("devices", [device.type]):
                continue
            axes = (
                product["models"],
                product["batch_size"],
                product["sequence_length"],
                product["precision"],
                product["execution"],
                product.get("mode", ["step"]),
                product.get("attention", ["auto"]),
                [1] if marked else range(1, product.get("processes", 1) + 1),
            )
            for model, batch_size, length, precision, execution, mode, attention, process in itertools.product(*axes):
                parts = [model, f"b{batch_size}", f"t{length}", precision, execution]
                parts += [mode] * (mode != "step") + [attention] * (attention != "auto")
                base = "-".join(parts)
                yield CellSpec(
                    id=base if process == 1 else f"{base}-p{process}",
                    name=model,
                    base=base,
                    device=device,
                    model=self.shape(model, length),
                    step=StepSpec(batch_size=batch_size, precision=precision, execution=execution, attention=attention),
                    optimizer=self.timed_optimizer,
                    mode=mode,
                    measure=from_json(MeasureSpec, grid["measure"]),
                    process=process,
                    fresh=product.get("processes", 1) > 1,
                    seed=0,
                )

    def run(self, device: str, run: str, shape: ModelShape) -> RunSpec:
        """The training `run` of a model whose shape, before any treatment, is this."""
        planned = self.runs[run]
        training = planned.treatment.training(self.config["training"])
        return RunSpec(
            id=run,
            device=self.devices[device],
            name=planned.name,
            treatment=planned.treatment.name,
            levels=planned.treatment.levels,
            model=treated_shape(shape, planned.treatment, training["sequence_length"]),
            step=_step(training, device in self.capturing),
            optimizer=_optimizer(training),
            n_steps=training["n_steps"],
            eval_every_steps=training["evaluation"]["every_steps"],
            eval_windows=training["evaluation"]["windows"],
            checkpoint_every_s=float(training["checkpoint_every_s"]),
            sample_tokens=training["sample"]["tokens"],
            sample_temperature=float(training["sample"]["temperature"]),
            timeout_s=float(training["timeout_s"]),
            seed=planned.seed,
        )

    def profile(self, device: str, name: str, shape: ModelShape) -> ProfileSpec:
        """The profile of a trained model."""
        return ProfileSpec(
            device=self.devices[device],
            name=name,
            model=shape,
            step=self.training_step(device),
            optimizer=self.timed_optimizer,
            warmup_steps=self.config["profile"]["warmup_steps"],
            n_steps=self.config["profile"]["n_steps"],
            timeout_s=float(self.config["profile"]["timeout_s"]),
            seed=0,
        )


def complete_shape(model: dict[str, Any], vocab_size: int, sequence_length: int) -> ModelShape:
    """Completes a shape of the config with its defaults, the vocabulary and the context length."""
    return ModelShape(
        architecture=model["architecture"],
        n_layer=model["n_layer"],
        n_head=model["n_head"],
        n_embd=model["n_embd"],
        n_inner=model.get("n_inner") or default_inner(model["architecture"], model["n_embd"]),
        vocab_size=vocab_size,
        sequence_length=sequence_length,
        dropout=float(model.get("dropout", 0.0)),
        bias=model.get("bias", True) if model["architecture"] == "gpt2" else False,
    )


def treated_shape(shape: ModelShape, treatment: Treatment, sequence_length: int) -> ModelShape:
    """A shape under a treatment; the MLP's width follows the model's unless it was chosen on its own."""
    changes = {"sequence_length": sequence_length, **treatment.model}
    usual = shape.n_inner == default_inner(shape.architecture, shape.n_embd)
    if "n_embd" in changes and "n_inner" not in changes and usual:
        changes["n_inner"] = default_inner(shape.architecture, changes["n_embd"])
    return dataclasses.replace(shape, **changes)


def _run_id(run: PlannedRun) -> str:
    treatment = [] if run.treatment.name == BASELINE else [run.treatment.name]
    return "-".join([run.name, *treatment, f"s{run.seed}"])


def _step(training: dict[str, Any], captures: bool) -> StepSpec:
    """The step that `training` describes; its execution `auto` is the fastest that the device is known to have."""
    keys = ("batch_size", "precision", "execution", "accumulation", "attention", "checkpointing")
    values = {key: training[key] for key in keys}
    if values["execution"] == "auto":
        # torch's Muon reads its learning rate on the host, which a CUDA graph would do once and for all.
        captures = captures and training["optimizer"]["name"] != "muon"
        values["execution"] = "graphed" if captures else "eager"
    return from_json(StepSpec, values)


def _optimizer(training: dict[str, Any]) -> OptimizerSpec:
    return from_json(OptimizerSpec, {**training["optimizer"], "decay_steps": training["n_steps"]})
