"""The training step: the one that is measured, trained with and profiled.

One optimizer step is, in order:

1. gather the batch on the device, cut into micro-batches;
2. forward and backward for each of them, gradients adding up to those of the whole batch;
3. clip the gradients by their global norm;
4. look up this step's learning rate and update the weights;
5. advance the cursor, so that the next step finds its own batch and rate.

Nothing in it waits for the device: batches, learning rates and counters live there, and loss and gradient norm stay
there until someone asks. So the same code runs eagerly, compiled, or captured whole as a CUDA graph.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
import torch
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from workflow_scripts.lib.batches import Batches, draw_offsets, offsets_sha256
from workflow_scripts.lib.device_timing import synchronise
from workflow_scripts.lib.execution import CapturedPhases, compilations, compile_loss, require
from workflow_scripts.lib.memory import peak_memory
from workflow_scripts.lib.model import Decoder, build_decoder
from workflow_scripts.lib.observation import observe_forward, require_attention
from workflow_scripts.lib.optimizers import ScheduledOptimizer
from workflow_scripts.lib.outcome import Unavailable
from workflow_scripts.lib.precision import autocast, loss_scaler, product_precision, residual_dtype, set_precision
from workflow_scripts.lib.random_state import random_state, set_random_state
from workflow_scripts.lib.specs import DeviceSpec, ModelShape, OptimizerSpec, StepSpec

CLIP_EPS = 1e-6  # torch.nn.utils.clip_grad_norm_'s


class TrainStep:
    """A model, its optimizer and its data on one device, advanced one optimizer step by each call of `run`.

    Build one with `TrainStep.build`.

    Attributes:
        decoder: the model, a plain module.
        loss: mean loss of the last step's batch in nats per token, 0-d float32 on the device.
        grad_norm: global gradient norm of the last step before clipping, 0-d float32 on the device.
        skipped_steps: updates left out because fp16 gradients overflowed, 0-d int64 on the device.
        steps_done: optimizer steps so far.

    The three tensors are overwritten by the next step: copy what is to be kept.
    """

    def __init__(
        self, decoder: Decoder, batches: Batches, optimizer: ScheduledOptimizer, spec: StepSpec, grad_clip: float
    ):
        self.spec, self.grad_clip = spec, grad_clip
        self.device = batches.tokens.device
        self.decoder, self.batches, self.optimizer = decoder, batches, optimizer
        decoder.residual_dtype = residual_dtype(spec.precision, spec.execution)
        self.parameters = list(decoder.parameters())
        self.scaler = loss_scaler(spec.precision, self.device)
        self.loss_of = decoder.loss if spec.execution == "eager" else compile_loss(decoder)
        self.captured = CapturedPhases(self.device, self._save) if spec.execution == "graphed" else None

        self.loss = torch.zeros((), device=self.device)
        self.grad_norm = torch.zeros((), device=self.device)
        self.skipped_steps = torch.zeros((), dtype=torch.int64, device=self.device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=self.device)  # index of the next step's batch and rate
        self.share = torch.tensor(1.0 / spec.accumulation, device=self.device)  # of a micro-batch in the gradient
        self.steps_done = 0
        self.micro_batches_run = 0  # by the last step; counted where they run, to be compared with what was asked

    @classmethod
    def build(
        cls,
        model: ModelShape,
        step: StepSpec,
        optimizer: OptimizerSpec,
        device: DeviceSpec,
        tokens: np.ndarray,
        n_steps: int,
        seed: int,
        draw_on: Literal["cpu", "device"] = "cpu",
    ) -> "TrainStep":
        """Builds everything that a training or a measurement needs; sets torch's threads, precision and global seed.

        Args:
            model: shape of the model.
            step: batch size, precision, execution and the like.
            optimizer: the optimizer and its learning rates.
            device: where to compute.
            tokens: ids of the training split, 1-D.
            n_steps: how many steps have a batch and a learning rate of their own; later ones start over.
            seed: of weights, offsets and dropout.
            draw_on: where weights are drawn; only `cpu` gives every device the same ones, `device` is faster.

        Raises:
            Unavailable: the device cannot do what `step` asks for.
            ValueError: a value of the specs cannot be.
        """
        if step.batch_size % step.accumulation:
            raise ValueError(
                f"batch_size is {step.batch_size}: it must be a multiple of accumulation, which is {step.accumulation}"
            )
        where = torch.device(device.torch_name)
        torch.set_num_threads(device.threads)
        if where.type == "cuda":
            torch.cuda.set_device(where)  # streams, events and graphs are those of the current device
        require(step.execution, where)
        set_precision(step.precision, where)
        torch.manual_seed(seed)  # dropout; weights and offsets have streams of their own

        offsets = draw_offsets(len(tokens), model.sequence_length, step.batch_size, n_steps, seed)
        attention = step.attention_on(device.type, model.sequence_length)
        options = {"attention": attention, "checkpointing": step.checkpointing, "draw_on": draw_on}
        decoder = build_decoder(model, where, seed, **options)
        scheduled = ScheduledOptimizer(decoder, optimizer, n_steps, capturable=step.execution == "graphed")
        if step.execution == "graphed" and scheduled.rate is None:
            raise Unavailable(
                f"graphed needs an optimizer that reads its learning rate on the device: {optimizer.name}"
            )
        batches = Batches(tokens, offsets, model.sequence_length, step.accumulation, where)
        built = cls(decoder, batches, scheduled, step, optimizer.grad_clip)
        built.offsets_sha256 = offsets_sha256(offsets)
        require_attention(step.attention, built.observe_forward)
        return built

    # What can be called, and timed.

    def run(self) -> None:
        """Makes one optimizer step."""
        self._perform(self._step)
        self.steps_done += 1

    def forward(self) -> None:
        """Computes the loss of the next step's batch, as training does, and nothing more."""
        self._perform(self._forward)

    def forward_backward(self) -> None:
        """Computes loss and gradients of the next step's batch."""
        self._perform(self._forward_backward)

    def optimizer_step(self) -> None:
        """Clips the gradients that `forward_backward` left and updates the weights with them."""
        self._perform(self._update)

    def synchronise(self) -> None:
        """Waits until the device has done all that was asked of it."""
        synchronise(self.device)

    def autocast(self) -> AbstractContextManager:
        """Gives a context in which a forward pass has the step's precision."""
        return autocast(self.spec.precision, self.device)

    # The step itself. No line below, up to `_perform`, synchronises host and device, but for fp16 with Adafactor or
    # Muon, where torch's scaler asks the device whether to skip the update.

    def _step(self) -> None:
        self._forward_backward()
        self._update()
        self.cursor.add_(1).remainder_(len(self.batches.offsets))

    def _forward_backward(self) -> None:
        self.optimizer.inner.zero_grad(set_to_none=True)  # the first backward pass then writes instead of adding
        self._forward(backward=True)

    def _forward(self, backward: bool = False) -> None:
        self.loss.zero_()
        inputs, targets = self.batches.gather(self.cursor)  # each (A, B / A, T)
        self.micro_batches_run = 0
        for micro_inputs, micro_targets in zip(inputs, targets, strict=True):
            with self.autocast():
                loss = self.loss_of(micro_inputs, micro_targets)
            if backward:
                # Each micro-batch counts for 1 / A: as the gradient that enters its loss, this costs no operation.
                self.scaler.scale(loss).backward(gradient=self.share)
            self.loss.add_(loss.detach(), alpha=1.0 / len(inputs))
            self.micro_batches_run += 1

    def _update(self) -> None:
        self.optimizer.set_rate(self.cursor, self.steps_done)
        self.scaler.unscale_(self.optimizer.inner)
        self.grad_norm.copy_(get_total_norm([p.grad for p in self.parameters]))
        if self.grad_clip > 0:
            self._clip()
        if self.scaler.is_enabled():  # a norm is finite exactly if all gradients are
            self.skipped_steps.add_(self.grad_norm.isfinite().logical_not())
        self.scaler.step(self.optimizer.inner)
        self.scaler.update()

    def _clip(self) -> None:
        """Scales the gradients down to a global norm of at most `grad_clip`."""
        if self.optimizer.divides and not self.scaler.is_enabled():
            # The update divides each gradient as it reads it, which saves a pass over all of them.
            self.optimizer.inner.grad_scale = ((self.grad_norm + CLIP_EPS) / self.grad_clip).clamp(min=1.0)
        else:
            clip_grads_with_norm_(self.parameters, self.grad_clip, self.grad_norm)

    def _perform(self, phase: Callable[[], None]) -> None:
        if self.captured is None:
            phase()
        else:
            self.captured.replay(phase)

    # What is known about it. All of this may synchronise.

    def learning_rate(self, step: int) -> float:
        """Gives the learning rate of the step that follows `step` steps: 0 for the first."""
        return float(self.optimizer.rates[step % len(self.optimizer.rates)])

    def memory(self) -> dict[str, Any]:
        """Reads the memory that the process used on its device, see `peak_memory`."""
        return peak_memory(self.device)

    def observed(self) -> dict[str, Any]:
        """Reads back what the step really did: to be compared with what was asked."""
        return {
            "device": str(self.parameters[0].device),
            "threads": torch.get_num_threads(),
            "product_precision": product_precision(self.device),
            **self.observe_forward(),
            "optimizer_class": type(self.optimizer.inner).__name__,
            "optimizer_state_bytes": self.optimizer.state_bytes(),
            "fused": self.optimizer.fused,
            # Index of the last step's rate; all that holds without a step is the first rate.
            "rate_index": max(self.steps_done - 1, 0) % len(self.optimizer.rates),
            "learning_rates": self.optimizer.held_rates(),
            "accumulation": self.micro_batches_run,
            **compilations(self.spec.checkpointing),
            "captured": sorted(name.lstrip("_") for name in self.captured.graphs) if self.captured else [],
            "loss_scale": self.scaler.get_scale() if self.scaler.is_enabled() else None,
            "skipped_steps": int(self.skipped_steps) if self.scaler.is_enabled() else None,
            "offsets_sha256": self.offsets_sha256,
        }

    def observe_forward(self) -> dict[str, Any]:
        """Reads back what the forward pass of one sequence does, see `observation`."""
        inputs, _ = self.batches.gather(self.cursor)
        return observe_forward(self.decoder, inputs[0, :1], self.autocast())

    def state_dict(self) -> dict[str, Any]:
        """Gives all that a later process needs to go on bit for bit; tensors are the live ones, not copies."""
        return {
            "decoder": self.decoder.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "steps_done": self.steps_done,
            "skipped_steps": int(self.skipped_steps),
            "rng": random_state(self.device),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a state that `state_dict` gave, here or in another process."""
        self.decoder.load_state_dict(state["decoder"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.steps_done = state["steps_done"]
        self.skipped_steps.fill_(state["skipped_steps"])
        self.cursor.fill_(self.steps_done % len(self.batches.offsets))
        set_random_state(self.device, state["rng"])
        if self.captured is not None:
            self.captured.forget()  # the optimizer's state has moved

    def _save(self) -> Callable[[], None]:
        """Copies to the host all that a phase changes, and returns what puts it back where it was."""

        def changing() -> list[torch.Tensor]:
            own = [self.loss, self.grad_norm, self.skipped_steps, self.cursor]
            return [*own, *(p.detach() for p in self.parameters), *self.optimizer.state_tensors()]

        saved = [tensor.to("cpu", copy=True) for tensor in changing()]
        scaler, rng = self.scaler.state_dict(), random_state(self.device)

        def put_back() -> None:
            # Before its first step an optimizer has no state: what it has made since starts at zero.
            now = changing()
            for tensor, value in zip(now, saved, strict=False):
                tensor.copy_(value)
            for tensor in now[len(saved) :]:
                tensor.zero_()
            self.scaler.load_state_dict(scaler)
            set_random_state(self.device, rng)

        return put_back
