"""A study: a checked config, resolved into the cells, runs and profiles that it asks for.

Ids are made here and nowhere else, and looked up, never parsed:
    cell  MODEL-bBATCH-tSEQUENCE_LENGTH-PRECISION-EXECUTION[-MODE][-ATTENTION][-pPROCESS]   middle-b8-t256-bf16-eager
    run   NAME-sSEED                                                                       wide-s1
"""

import dataclasses
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

ROLES = ("wide", "deep", "balanced", "largest")
MATCHED_ROLES = ("wide", "deep", "balanced")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """A checked study. `devices` are the local ones by id; `vocab_size` is that of the corpus's tokens."""

    name: str
    config: dict[str, Any]
    devices: dict[str, DeviceSpec]
    vocab_size: int

    @property
    def optimizer(self) -> OptimizerSpec:
        values = self.config["training"]["optimizer"]
        return from_json(OptimizerSpec, {**values, "decay_steps": self.config["training"]["n_steps"]})

    @property
    def timed_optimizer(self) -> OptimizerSpec:
        """The optimizer at one small learning rate, for cells and profiles: no step costs more for its rate."""
        constant = {"learning_rate": 1e-4, "min_learning_rate": 1e-4, "warmup_steps": 0, "decay_steps": 1}
        return dataclasses.replace(self.optimizer, schedule="constant", **constant)

    @property
    def training_step(self) -> StepSpec:
        training = self.config["training"]
        return from_json(
            StepSpec, {key: training[key] for key in ("batch_size", "precision", "execution", "accumulation")}
        )

    @property
    def trained(self) -> list[str]:
        """Names of what is trained and profiled: roles or models."""
        return self.config["training"]["models"]

    @property
    def needs_selection(self) -> bool:
        return any(name in ROLES for name in self.trained)

    @property
    def runs(self) -> dict[str, tuple[str, int]]:
        """Run ids with the role or model and the seed of each."""
        seeds = self.config["training"]["seeds"]
        return {f"{name}-s{seed}": (name, seed) for name in self.trained for seed in seeds}

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
        used |= {(architectures[name], self.training_step) for name in self.trained}
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
            if marked and not product.get(marked, False):
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
        """The training `run` of a model of this shape."""
        name, seed = self.runs[run]
        training = self.config["training"]
        return RunSpec(
            id=run,
            device=self.devices[device],
            name=name,
            treatment="baseline",
            model=shape,
            step=self.training_step,
            optimizer=self.optimizer,
            n_steps=training["n_steps"],
            eval_every_steps=training["evaluation"]["every_steps"],
            eval_windows=training["evaluation"]["windows"],
            checkpoint_every_s=float(training["checkpoint_every_s"]),
            sample_tokens=training["sample"]["tokens"],
            sample_temperature=float(training["sample"]["temperature"]),
            timeout_s=float(training["timeout_s"]),
            seed=seed,
        )

    def profile(self, device: str, name: str, shape: ModelShape) -> ProfileSpec:
        """The profile of a trained model."""
        return ProfileSpec(
            device=self.devices[device],
            name=name,
            model=shape,
            step=self.training_step,
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
