"""A corpus of one line of text, over and over, and a model of two layers that learns it in seconds."""

import csv
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from workflow_scripts.lib.specs import (
    CellSpec,
    DeviceSpec,
    MeasureSpec,
    ModelShape,
    OptimizerSpec,
    ProfileSpec,
    RunSpec,
    StepSpec,
    to_json,
)

TEXT = "in the beginning was the word, and the word was with us\n" * 60
VOCABULARY = sorted(set(TEXT))
CPU = DeviceSpec(id="cpu", type="cpu", threads=1)
SHAPE = ModelShape(
    architecture="gpt2", n_layer=2, n_head=2, n_embd=32, n_inner=64, vocab_size=len(VOCABULARY), sequence_length=16
)
STEP = StepSpec(batch_size=4, precision="fp32", execution="eager")
ADAMW = OptimizerSpec(
    name="adamw",
    learning_rate=3e-3,
    min_learning_rate=3e-4,
    warmup_steps=3,
    decay_steps=30,
    schedule="cosine",
    weight_decay=0.1,
    beta1=0.9,
    beta2=0.95,
    momentum=0.0,
    grad_clip=1.0,
)
RUN = RunSpec(
    id="tiny-s1",
    device=CPU,
    name="tiny",
    treatment="baseline",
    levels={},
    model=SHAPE,
    step=STEP,
    optimizer=ADAMW,
    n_steps=30,
    eval_every_steps=10,
    eval_windows=6,
    checkpoint_every_s=1000.0,
    sample_tokens=12,
    sample_temperature=0.8,
    timeout_s=100.0,
    seed=1,
)
CELL = CellSpec(
    id="tiny",
    name="tiny",
    base="tiny",
    device=CPU,
    model=SHAPE,
    step=STEP,
    optimizer=ADAMW,
    mode="step",
    measure=MeasureSpec(min_samples=5, target_interval=0.5, max_seconds=5.0, timeout_s=60.0),
    process=1,
    fresh=False,
    seed=1,
)
PROFILE = ProfileSpec(
    device=CPU, name="tiny", model=SHAPE, step=STEP, optimizer=ADAMW, warmup_steps=2, n_steps=3, timeout_s=100.0, seed=1
)


def write_corpus(folder: Path) -> dict[str, Path]:
    """Writes tokens.bin and corpus.json as the pipeline does, nine tenths for training."""
    ids = np.array([VOCABULARY.index(character) for character in TEXT], dtype=np.uint8)
    border = len(ids) * 9 // 10
    (folder / "tokens.bin").write_bytes(ids.tobytes())
    corpus = {
        "tokenizer": {"kind": "character", "vocab_size": len(VOCABULARY), "vocabulary": VOCABULARY},
        "vocab_size": len(VOCABULARY),
        "dtype": "uint8",
        "n_tokens": len(ids),
        "splits": {"train": {"start": 0, "stop": border}, "validation": {"start": border, "stop": len(ids)}},
        "tokens_sha256": hashlib.sha256(ids.tobytes()).hexdigest(),
    }
    (folder / "corpus.json").write_text(json.dumps(corpus))
    return {"tokens": folder / "tokens.bin", "corpus": folder / "corpus.json"}


def write_calibration(folder: Path) -> Path:
    """Writes a calibration.json that bars nothing."""
    path = folder / "calibration.json"
    path.write_text(json.dumps({"status": "ok", "reason": "", "barred": [], "unavailable": []}))
    return path


def outputs(folder: Path) -> dict[str, Path]:
    """Where a run's files go."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "metrics": folder / "metrics.csv",
        "weights": folder / "model.safetensors",
        "samples": folder / "samples.txt",
    }


def arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    """Arguments of `training.train` for the tiny run with some of its values changed."""
    run = dataclasses.replace(RUN, **changes)
    paths = {**write_corpus(folder.parent), **outputs(folder), "checkpoints": folder / "checkpoint"}
    return {"run": to_json(run), "code": "c0de", **{key: str(path) for key, path in paths.items()}}


def table(arguments: dict) -> list[dict[str, str]]:
    with Path(arguments["metrics"]).open(newline="") as file:
        return list(csv.DictReader(file))
