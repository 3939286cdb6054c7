"""Optimizers and their learning rates, arranged so that a step never waits for the host.

The rates of all steps are computed beforehand. Where the optimizer takes its rate as a tensor, table and rate live on
the device and a step looks its own up; otherwise the host sets a float, which needs no synchronisation either, but
cannot be captured in a CUDA graph.
"""

import itertools
from typing import Any

import torch
from torch import Tensor, nn

from workflow_scripts.lib.schedule import learning_rates
from workflow_scripts.lib.specs import OptimizerName, OptimizerSpec

_OWN = ("lr", "fused", "foreach", "capturable")  # of a parameter group: how it computes, not what it has learned
ADAM_EPS = 1e-8  # Adam (Kingma and Ba 2015, algorithm 1)


class ScheduledOptimizer:
    """An optimizer with its learning rates, and what there is to know about both.

    Args:
        decoder: the model on its device.
        spec: which optimizer.
        n_steps: length of the table of rates; step n_steps + 1 starts it anew.
        capturable: whether its steps will be captured in a CUDA graph.

    Attributes:
        inner: the optimizer itself: `torch.optim`'s, or `MuonWithAdamW`.
        fused: whether one kernel updates all parameters; found by trying, False where torch has no such kernel.
        divides: whether that kernel divides gradients by `inner.grad_scale` (0-d float32) as it reads them.
        rates: (n_steps,) float64, on the host.
        rate: the current step's rate as a 0-d float32 tensor on the device, or None where it must be a float.
    """

    def __init__(self, decoder: nn.Module, spec: OptimizerSpec, n_steps: int, capturable: bool = False):
        device = next(decoder.parameters()).device
        self.rates = learning_rates(spec, n_steps)
        self.fused = fused_works(spec.name, device)
        self.divides = self.fused and fused_works(spec.name, device, divisor=2.0)
        self.rate = torch.tensor(self.rates[0], dtype=torch.float32, device=device) if self.fused else None
        self.table = torch.tensor(self.rates, dtype=torch.float32, device=device) if self.fused else None
        self.inner = build_optimizer(decoder, spec, self.rates[0] if self.rate is None else self.rate, self.fused)
        if capturable and spec.name == "adamw":  # SGD has no such switch: its steps keep no count
            for group in self.inner.param_groups:
                group["capturable"] = True

    def set_rate(self, cursor: Tensor, step: int) -> None:
        """Sets the rate of one step: by its index on the device, `cursor` (1,) int64, or on the host, `step`."""
        if self.rate is not None:
            self.rate.copy_(self.table.index_select(0, cursor)[0])
            return
        for group in self.inner.param_groups:
            group["lr"] = float(self.rates[step % len(self.rates)])

    def held_rates(self) -> list[float]:
        """Reads back the different rates that parameter groups hold, smallest first. Synchronises."""
        return sorted({float(group["lr"]) for group in self.inner.param_groups})

    def state_tensors(self) -> list[Tensor]:
        """All tensors of the optimizer's state; zero in every optimizer here before its first step."""
        values = itertools.chain.from_iterable(state.values() for state in self.inner.state.values())
        return [value for value in values if isinstance(value, Tensor)]

    def state_bytes(self) -> int:
        """Bytes that the state takes on its device."""
        return sum(tensor.nbytes for tensor in self.state_tensors())

    def state_dict(self) -> dict[str, Any]:
        """Gives the optimizer's state; learning rates in it are not read again, they follow from the step's number."""
        return self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes up a state, but not how it was computed: the rate stays the tensor that the step writes to."""
        kept = [{key: group[key] for key in _OWN if key in group} for group in self.inner.param_groups]
        self.inner.load_state_dict(state)
        for group, own in zip(self.inner.param_groups, kept, strict=True):
            group.update(own)


class MuonWithAdamW:
    """Muon for the matrices of the blocks, AdamW for embeddings, head and vectors, behind one optimizer's interface.

    Muon (Jordan 2024) orthogonalises the momentum of a matrix. With the scale of Moonlight (Liu et al. 2025, section
    2.2, `match_rms_adamw`) its updates are as large as AdamW's, so both take the same rate and the same decay.
    """

    def __init__(self, muon: torch.optim.Muon, adamw: torch.optim.AdamW):
        self.parts = (muon, adamw)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for part in self.parts for group in part.param_groups]

    @property
    def state(self) -> dict[Tensor, Any]:
        return {parameter: state for part in self.parts for parameter, state in part.state.items()}

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for part, saved in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(saved)


def build_optimizer(
    decoder: nn.Module, spec: OptimizerSpec, rate: float | Tensor, fused: bool
) -> torch.optim.Optimizer | MuonWithAdamW:
    """Builds the optimizer over the decoder's parameters; only those with two dimensions or more decay.

    Decay is decoupled (AdamW, Adafactor, Muon: each step multiplies weights by 1 − rate × decay) but for SGD, whose
    decay in torch adds decay × weight to the gradient.
    """
    named = list(decoder.named_parameters())
    if spec.name == "muon":
        hidden = [p for name, p in named if name.startswith("blocks.") and p.ndim == 2]
        taken = set(hidden)
        rest = [p for _, p in named if p not in taken]
        muon = torch.optim.Muon(
            hidden, rate, spec.weight_decay, spec.momentum, nesterov=True, adjust_lr_fn="match_rms_adamw"
        )
        return MuonWithAdamW(muon, _adamw(_groups(rest, spec.weight_decay), spec, rate, fused=False))
    groups = _groups([p for _, p in named], spec.weight_decay)
    if spec.name == "adamw":
        return _adamw(groups, spec, rate, fused)
    if spec.name == "sgd":
        return torch.optim.SGD(groups, rate, momentum=spec.momentum, fused=fused or None)
    return torch.optim.Adafactor(groups, rate)


def _adamw(groups: list[dict], spec: OptimizerSpec, rate: float | Tensor, fused: bool) -> torch.optim.AdamW:
    return torch.optim.AdamW(groups, rate, betas=(spec.beta1, spec.beta2), eps=ADAM_EPS, fused=fused or None)


def _groups(parameters: list[Tensor], weight_decay: float) -> list[dict]:
    matrices, vectors = [p for p in parameters if p.ndim >= 2], [p for p in parameters if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def fused_works(name: OptimizerName, device: torch.device, divisor: float = 1.0) -> bool:
    """Tries the fused kernel on one parameter of the device, its rate a tensor. Synchronises.

    torch has fused kernels for AdamW and SGD on CPU, CUDA and (recent releases) MPS; Adafactor and Muon have none, and
    both read numbers back to the host themselves or bake the rate into their kernels' arguments. A `divisor` other than
    1 asks, too, whether the kernel divides gradients, as `torch.amp.GradScaler` has it do.
    """
    kinds = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    if name not in kinds:
        return False
    parameter, gradient = nn.Parameter(torch.ones(1, device=device)), 1 / divisor
    parameter.grad = torch.ones_like(parameter)
    options = {"eps": 1.0} if name == "adamw" else {}  # else Adam's first update would not depend on the gradient
    try:
        optimizer = kinds[name](
            [parameter], lr=torch.tensor(0.5, device=device), weight_decay=0.0, fused=True, **options
        )
        if divisor != 1.0:
            optimizer.grad_scale = torch.tensor(divisor, device=device)
        optimizer.step()
    except (RuntimeError, NotImplementedError, ValueError):
        return False  # there is none
    update = 0.5 * gradient / (gradient + 1.0) if name == "adamw" else 0.5 * gradient
    return abs(parameter.item() - (1.0 - update)) < 1e-3
