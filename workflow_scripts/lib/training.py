"""One training from its first step to its files: the loop around `TrainStep`, and what is kept of it.

A child process runs `train`. Steps go in blocks that end where something else is due (an evaluation, a checkpoint, a
message), and only between blocks does the host wait for the device. Every second is booked under one phase, so that
evaluation, checkpoints and sampling never stand in the time of a step. What a run has shown so far lives in its
checkpoint, so a killed run goes on with its whole history.
"""

import hashlib
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from workflow_scripts.lib.checkpoint import Checkpoints
from workflow_scripts.lib.corpus import load_tokens
from workflow_scripts.lib.energy import count_energy
from workflow_scripts.lib.evaluation import Windows, choose_windows, validation_loss
from workflow_scripts.lib.generation import generate
from workflow_scripts.lib.history import StepRow
from workflow_scripts.lib.machine_state import between, energy_j, snapshot
from workflow_scripts.lib.memory import peak_memory
from workflow_scripts.lib.outcome import Diverged
from workflow_scripts.lib.specs import RunSpec, canonical, from_json, to_json
from workflow_scripts.lib.step import TrainStep
from workflow_scripts.lib.step_log import StepLog
from workflow_scripts.lib.time_sheet import TimeSheet
from workflow_scripts.lib.tokenizer import tokenizer_from
from workflow_scripts.lib.whole_files import write_rows, write_whole

BLOCK_STEPS = 1000  # the longest block; also bounds what waits on the device
BLOCK_S = 2.0  # a message at least this often, unless one step takes longer
UNGUARDED = ("timeout_s", "checkpoint_every_s")  # values of a run that do not change what it computes

Send = Callable[[dict[str, Any]], None]


def train(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Trains one run to its end, or goes on with it where a checkpoint was left.

    Args:
        arguments: `run` (a `RunSpec` as JSON); paths to read, `tokens` and `corpus`; paths to write, `metrics`,
            `weights` and `samples`; `checkpoints`, a folder that is used meanwhile and left to the caller to remove;
            `code`, the digest of this code (a checkpoint of other code is not resumed).
        send: takes messages: `{"partial": result so far}`, `{"notice": sentence}`, `{"rows": [...]}` in the order of
            `StepRow` (over all messages of one call: each step once, in order), `{"progress": {"step", "n_steps",
            "loss", "tokens_per_s", "eta_s"}}`.

    Returns:
        The result of the run's record; see `Training.result`.

    Raises:
        Diverged: the loss became NaN or infinite.
    """
    training = Training(arguments, send)
    training.resume()
    while training.n_done < training.run.n_steps:
        training.run_block()
        evaluated = training.evaluation_is_due()
        if evaluated:
            training.evaluate()
        training.report()
        if evaluated or training.checkpoint_is_due():
            training.save_checkpoint()
    training.write_files()
    training.count_energy()
    return training.result()


class Training:
    """The state of one run while it trains; `train` shows the order in which its methods are called."""

    def __init__(self, arguments: dict[str, Any], send: Send):
        self.sheet = TimeSheet("setup_s")
        self.send = send
        self.run = run = from_json(RunSpec, arguments["run"])
        self.arguments = arguments
        self.corpus = json.loads(Path(arguments["corpus"]).read_text(encoding="utf-8"))
        self.device = torch.device(run.device.torch_name)
        tokens = load_tokens(Path(arguments["tokens"]), self.corpus, "train")
        self.validation_tokens = load_tokens(Path(arguments["tokens"]), self.corpus, "validation")
        self.windows: Windows = choose_windows(self.validation_tokens, run.eval_windows, run.model.sequence_length)
        self.step = TrainStep.build(
            run.model, run.step, run.optimizer, run.device, tokens=tokens, n_steps=run.n_steps, seed=run.seed
        )
        self.log = StepLog(self.step, self.device, BLOCK_STEPS)
        self.init_sha256 = digest_weights(self.step.decoder)
        self.checkpoints = Checkpoints(Path(arguments["checkpoints"]), guard_of(run, self.corpus, arguments))
        self.rows: list[StepRow] = []
        self.n_sent = 0  # rows that the job has already
        self.resumed_at_steps: list[int] = []
        self.observed: dict[str, Any] = {}
        self.energy: dict[str, Any] | None = None
        self.tokens_per_step = run.step.batch_size * run.model.sequence_length

    @property
    def n_done(self) -> int:
        """Steps done so far."""
        return len(self.rows)

    @property
    def first_step(self) -> int:
        """The step that this process began with, which may have compiled and so is in no row's `elapsed_s`."""
        return (self.resumed_at_steps or [0])[-1] + 1

    def resume(self) -> None:
        """Loads the newest checkpoint, if there is one of this very run, and begins the time of training."""
        saved = self.checkpoints.load()
        for sentence in self.checkpoints.notices:
            self.send({"notice": sentence})
        if saved is not None:
            self.step.load_state_dict(saved["step"])
            self.rows = [StepRow.of_numbers(values) for values in saved["rows"].tolist()]
            self.observed = saved["observed"]
            self.resumed_at_steps = [*saved["resumed_at_steps"], self.n_done]
            for phase, seconds in saved["booked"].items():
                self.sheet.booked[phase] = self.sheet.booked.get(phase, 0.0) + seconds
            self.send({"notice": f"goes on from a checkpoint after step {self.n_done} of {self.run.n_steps}"})
        self.machine_before = snapshot(self.run.device)
        self.sheet.switch("train_s")

    def run_block(self) -> None:
        """Runs steps up to whatever is due next, then reads their losses.

        Raises:
            Diverged: a loss is not finite. The rows end with the step before it.
        """
        every = self.run.eval_every_steps or self.run.n_steps
        until = min(self.run.n_steps, (self.n_done // every + 1) * every, self.n_done + BLOCK_STEPS)
        ends_at = time.monotonic() + BLOCK_S
        for _ in range(until - self.n_done):
            self.log.run_step()
            if time.monotonic() >= ends_at or self.checkpoint_is_due():
                break
        elapsed_s = self.rows[-1].elapsed_s if self.rows else 0.0
        for loss, grad_norm, step_time_s in self.log.read():
            step = self.n_done + 1
            if not math.isfinite(loss):
                raise self.diverged(step, f"loss {loss}")
            if step > self.first_step:
                elapsed_s += step_time_s
            tokens, rate = step * self.tokens_per_step, self.step.learning_rate(step)
            norm = None if math.isnan(grad_norm) else grad_norm
            self.rows.append(StepRow(step, tokens, elapsed_s, loss, rate, norm, step_time_s))

    def diverged(self, step: int, what: str) -> Diverged:
        """Sends what there was before, up to the last finite loss, and gives the exception to raise."""
        self.send_rows()
        self.send({"partial": {**self.result(), "diverged_at_step": step}})
        last = f"last finite loss {self.rows[-1].loss:.6g} at step {self.n_done}" if self.rows else "no finite loss"
        return Diverged(f"diverged at step {step}: {what}, {last}")

    def evaluation_is_due(self) -> bool:
        """After every `eval_every_steps` steps (0: never in between), and after the last."""
        every = self.run.eval_every_steps
        return self.n_done == self.run.n_steps or (every > 0 and self.n_done % every == 0)

    def evaluate(self) -> None:
        """Writes the validation loss into the row of the last step."""
        with self.sheet.spend("eval_s"), self.step.autocast():
            micro_batch = self.run.step.batch_size // self.run.step.accumulation
            loss = validation_loss(self.step.decoder, self.windows, device=self.device, chunk=micro_batch)
        if not math.isfinite(loss):
            raise self.diverged(self.n_done, f"validation loss {loss}")
        self.rows[-1] = self.rows[-1]._replace(val_loss=loss)

    def checkpoint_is_due(self) -> bool:
        return self.checkpoints.age_s() >= self.run.checkpoint_every_s

    def save_checkpoint(self) -> None:
        """Keeps the whole history and the state of the step, and tells the job what is known so far."""
        with self.sheet.spend("checkpoint_s"):
            self.observed = self.step.observed()
            self.checkpoints.save(
                {
                    "step": self.step.state_dict(),
                    "rows": torch.tensor([row.numbers() for row in self.rows], dtype=torch.float64),  # (steps, columns)
                    "observed": self.observed,
                    "resumed_at_steps": self.resumed_at_steps,
                    "booked": self.sheet.totals(),
                }
            )
            self.send({"partial": self.result()})

    def report(self) -> None:
        """Sends the new rows, and how far the run is and how long it will take."""
        step_time_s = statistics.median(row.step_time_s for row in self.send_rows())
        left, every = self.run.n_steps - self.n_done, self.run.eval_every_steps
        evaluations = sum(row.val_loss is not None for row in self.rows)
        eval_time_s = self.sheet.totals().get("eval_s", 0.0) / max(evaluations, 1)
        progress = {
            "step": self.n_done,
            "n_steps": self.run.n_steps,
            "loss": self.rows[-1].loss,
            "tokens_per_s": self.tokens_per_step / step_time_s,
            "eta_s": left * step_time_s + (left / every if every else left > 0) * eval_time_s,
        }
        self.send({"progress": progress})

    def send_rows(self) -> list[StepRow]:
        new, self.n_sent = self.rows[self.n_sent :], self.n_done
        self.send({"rows": new})
        return new

    def write_files(self) -> None:
        """Writes metrics, weights and a sample."""
        with self.sheet.spend("sample_s"), self.step.autocast():
            text = self.sample()
        with self.sheet.spend("checkpoint_s"):
            write_rows(Path(self.arguments["metrics"]), StepRow._fields, (row.written() for row in self.rows))
            write_whole(Path(self.arguments["samples"]), lambda path: path.write_text(text, encoding="utf-8"))
            state = self.step.decoder.state_dict()  # a tied head is no name of its own: nothing in it is shared
            weights = {name: value.detach().cpu().contiguous() for name, value in state.items()}
            # One entry: the order of several is not settled, and equal weights shall be equal files.
            about = {"assay": canonical({"run": self.run.id, "model": to_json(self.run.model)})}
            write_whole(Path(self.arguments["weights"]), lambda path: save_file(weights, path, metadata=about))

    def count_energy(self) -> None:
        """Counts the energy of further steps, which nothing keeps: those of the run stand between evaluations."""
        with self.sheet.spend("energy_s"):
            self.energy = count_energy(self.step.run, self.step.synchronise, lambda: energy_j(self.run.device))

    def sample(self) -> str:
        """Lets the model write from a line break on, or from the validation split's start where the corpus has none."""
        tokenizer = tokenizer_from(self.corpus)
        try:
            prompt = tokenizer.encode("\n")
        except ValueError:
            prompt = [int(self.validation_tokens[0])]
        ids = generate(
            self.step.decoder,
            prompt,
            self.run.sample_tokens,
            sequence_length=self.run.model.sequence_length,
            device=self.device,
            seed=self.run.seed,
            temperature=self.run.sample_temperature,
        )
        return tokenizer.decode(ids)

    def machine(self) -> dict[str, Any]:
        """The machine's state before this process trained and at this moment, and the rates in between."""
        after = snapshot(self.run.device)
        return {"before": self.machine_before, "after": after, "between": between(self.machine_before, after)}

    def result(self) -> dict[str, Any]:
        """What the record keeps of the run, as far as it has come. Losses in nats per token, times in s.

        `setup_s`, `train_s`, `eval_s`, `checkpoint_s`, `sample_s` and `energy_s` sum to the process's time in `train`,
        over all processes of an interrupted run as far as their work was kept. `train_s` covers the steps and what is
        between them (steps alone, but for each process's first, are the last `elapsed_s` of the metrics),
        `checkpoint_s` also the files at the end.
        """
        evaluated = [row for row in self.rows if row.val_loss is not None]
        best = min(evaluated, key=lambda row: row.val_loss, default=None)
        return {
            "n_steps": self.n_done,
            "n_tokens": self.n_done * self.tokens_per_step,
            "tokens_per_step": self.tokens_per_step,
            **{f"{phase}_s": 0.0 for phase in ("setup", "train", "eval", "checkpoint", "sample", "energy")},
            **self.sheet.totals(),
            "first_step_s": self.rows[0].step_time_s if self.rows else None,
            "resumed_at_steps": self.resumed_at_steps,
            "last_finite_loss": self.rows[-1].loss if self.rows else None,
            "final_val_loss": self.rows[-1].val_loss if self.rows else None,
            "best_val_loss": best and best.val_loss,
            "best_val_step": best and best.step,
            "n_evaluations": len(evaluated),
            "eval_tokens": self.windows.n_tokens,
            "eval_windows_sha256": self.windows.sha256,
            "offsets_sha256": self.step.offsets_sha256,
            "init_sha256": self.init_sha256,
            "memory": peak_memory(self.device),
            "energy": self.energy,
            "machine": self.machine(),
            "observed": self.observed,
        }


def guard_of(run: RunSpec, corpus: dict[str, Any], arguments: dict[str, Any]) -> str:
    """Digests what makes a run what it is; a checkpoint is only good for a run of the same guard."""
    asked = {key: value for key, value in to_json(run).items() if key not in UNGUARDED}
    made_by = {"tokens": corpus["tokens_sha256"], "code": arguments["code"], "torch": torch.__version__}
    return hashlib.sha256(canonical({"run": asked, **made_by}).encode()).hexdigest()


def digest_weights(decoder: torch.nn.Module) -> str:
    """SHA-256 over all parameters in the order of their names: equal where two devices start from the same weights."""
    digest = hashlib.sha256()
    for name, value in sorted(decoder.named_parameters()):
        digest.update(f"{name}{tuple(value.shape)}".encode() + value.detach().cpu().numpy().tobytes())
    return digest.hexdigest()
