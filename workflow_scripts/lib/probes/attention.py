"""Attention alone: forward and backward of one backend over head sizes and context lengths, to where each ends.

No mask and no dropout: softmax(Q Kᵀ / √D) V of B sequences and H heads. Each combination is an attempt of its own. The
end of one is a row, and the longer contexts of its series are then not tried: their rows hold the bytes that the
shorter ones predict.
"""

import dataclasses
import gc
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from workflow_scripts.lib.device_timing import clock_of, synchronise
from workflow_scripts.lib.execution import require
from workflow_scripts.lib.outcome import Unavailable, classify
from workflow_scripts.lib.precision import AUTOCAST, set_precision
from workflow_scripts.lib.probe_specs import AttentionProbe, probe_from_json
from workflow_scripts.lib.probes.attention_memory import available_bytes, capacity_bytes, count_memory
from workflow_scripts.lib.specs import MeasureSpec
from workflow_scripts.lib.timing import sample_steps

BACKENDS = {
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
# What torch says where a device, format or head size has no such kernel.
_LACKS = ("available kernel", "viable backend", "not support", "only supports", "notimplemented", "not implemented")
WITHOUT_END = 1e9  # a target that every interval meets: so many passes and no more
PATIENCE = 3.0  # a context whose one pass would take so many times the time for all passes is not tried
HOST_SHARE = 0.6  # of the free memory of a host, which an attempt must not exhaust
SCORES = 6.0  # matrices of scores at the peak, where nothing has been measured yet

Send = Callable[[dict[str, Any]], None]
logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """One combination: what is computed."""

    batch_size: int
    n_head: int
    head_size: int
    sequence_length: int
    precision: str
    backend: str
    compiled: bool

    @property
    def dtype(self) -> torch.dtype:
        return AUTOCAST.get(self.precision, torch.float32)


def probe(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Measures every combination that the probe names.

    Returns:
        `capacity_bytes` of the device, and `rows`: the fields of `Work`, `status`, `reason`, and where measured
        `forward_s` and `backward_s` (samples in order, s per pass, warm), `first_s` (the first forward and backward,
        compiling included), `before_backward_bytes` (all that is allocated once the forward is done, inputs included),
        `peak_bytes`, `memory_method`; where not tried `predicted_bytes`.
    """
    spec = probe_from_json(arguments["probe"])
    assert isinstance(spec, AttentionProbe)
    device = torch.device(spec.device.torch_name)
    torch.set_num_threads(spec.device.threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    set_precision("fp32", device)
    result: dict[str, Any] = {"capacity_bytes": capacity_bytes(device), "rows": []}
    for series in series_of(spec):
        for row in measure_series(series, spec, device):
            result["rows"].append(row)
            send({"partial": result})
    return result


def series_of(spec: AttentionProbe) -> Iterator[list[Work]]:
    """Combinations that differ in context length only, shortest first."""
    for backend in spec.backends:
        for compiled in spec.compiled:
            for precision in spec.precisions:
                for head_size in spec.head_sizes:
                    yield [
                        Work(
                            batch_size=spec.batch_size,
                            n_head=spec.n_head,
                            head_size=head_size,
                            sequence_length=length,
                            precision=precision,
                            backend=backend,
                            compiled=compiled,
                        )
                        for length in sorted(spec.sequence_lengths)
                    ]


def measure_series(series: list[Work], spec: AttentionProbe, device: torch.device) -> Iterator[dict[str, Any]]:
    """Tries the combinations of a series until one does not end well; the rest get its status, and a prediction."""
    done: list[dict[str, Any]] = []
    ended: dict[str, Any] | None = None
    for work in series:
        bytes_expected = expected_bytes(work, done)
        row: dict[str, Any] = {**dataclasses.asdict(work), "predicted_bytes": round(bytes_expected)}
        if ended is None:
            reason = hopeless(work, done, bytes_expected, spec, device)
            row |= reason or attempt(work, spec, device)
            done += [row] if row["status"] == "ok" else []
            ended = None if row["status"] == "ok" else row
        elif ended["status"] == "unavailable":
            row |= {key: ended[key] for key in ("status", "reason")}
        else:
            row |= {
                "status": "predicted_oom" if ended["status"] in ("oom", "predicted_oom") else ended["status"],
                "reason": f"not tried: context {ended['sequence_length']} of the same series did not end well",
            }
        yield row


def hopeless(
    work: Work, done: list[dict[str, Any]], bytes_expected: float, spec: AttentionProbe, device: torch.device
) -> dict[str, Any] | None:
    """What is not tried: on a CPU what its host might not survive, anywhere what one pass would take too long for."""
    if device.type == "cpu" and bytes_expected > HOST_SHARE * available_bytes():
        return {"status": "predicted_oom", "reason": f"not tried: more than {HOST_SHARE:.0%} of the host's free memory"}
    if done:
        grown = (work.sequence_length / done[-1]["sequence_length"]) ** 2
        pass_s = grown * (min(done[-1]["forward_s"]) + min(done[-1]["backward_s"]))
        if pass_s > PATIENCE * spec.max_seconds:
            return {"status": "timeout", "reason": f"not tried: one pass is expected to take {pass_s:.3g} s"}
    return None


def attempt(work: Work, spec: AttentionProbe, device: torch.device) -> dict[str, Any]:
    """Measures one combination, whatever becomes of it."""
    free(device)
    try:
        return {"status": "ok", "reason": "", **measure(work, spec, device)}
    except Exception as error:  # each failure is a result of its combination
        status, reason = classify(error)
        if status == "error" and any(part in reason.lower() for part in _LACKS):
            status = "unavailable"
        logger.info("%s: %s, %s", work, status, reason)
        return {"status": status, "reason": reason}
    finally:
        free(device)


def measure(work: Work, spec: AttentionProbe, device: torch.device) -> dict[str, Any]:
    """Measures memory in one pass of its own, then times forward and backward apart."""
    attend = attention(work, device)
    measured = MeasureSpec(
        min_samples=spec.passes, target_interval=WITHOUT_END, max_seconds=spec.max_seconds, timeout_s=spec.timeout_s
    )
    with chosen(work):
        started = time.perf_counter()
        inputs, gradient = draw(work, device)
        attend(*inputs).backward(gradient)
        synchronise(device)
        first_s = time.perf_counter() - started
        del inputs, gradient
        free(device)
        memory = count_memory(lambda: draw(work, device), attend, device)
        inputs, gradient = draw(work, device)

        def times(run: Callable[[], None]) -> list[float]:
            found = sample_steps(run, lambda: synchronise(device), clock=clock_of(device), measure=measured)
            return [float(f"{value:.5g}") for value in found.samples_s]

        def forward() -> None:
            attend(*inputs)

        forward_s = times(forward)
        out = attend(*inputs)

        def backward() -> None:
            torch.autograd.grad(out, inputs, gradient, retain_graph=True)

        backward_s = times(backward)
    return {"forward_s": forward_s, "backward_s": backward_s, "first_s": first_s, **memory}


def attention(work: Work, device: torch.device) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Gives attention by this backend, as (B, H, T, D) × 3 -> (B, H, T, D)."""
    if work.compiled:
        require("compiled", device)
        torch._dynamo.reset()
        torch._functorch.config.donated_buffer = False  # so that one graph can be gone through backwards many times
    if work.backend == "flex":
        from torch.nn.attention.flex_attention import flex_attention as attend
    else:
        attend = scaled_dot_product_attention
    if not work.compiled:
        return attend
    # Else the compiler puts a fused kernel in the place of the spelled-out one.
    options = {"pattern_matcher": False} if work.backend == "math" else None
    return torch.compile(attend, fullgraph=True, dynamic=False, options=options)


def chosen(work: Work) -> AbstractContextManager:
    """Gives the context in which only the asked backend may run."""
    return nullcontext() if work.backend == "flex" else sdpa_kernel(BACKENDS[work.backend])


def draw(work: Work, device: torch.device) -> tuple[list[Tensor], Tensor]:
    """Draws queries, keys and values, and the gradient of the output: each (B, H, T, D)."""
    if device.type == "cpu" and work.backend in ("efficient", "cudnn"):
        raise Unavailable(f"{work.backend} attention is a CUDA kernel")
    torch.manual_seed(0)
    shape = (work.batch_size, work.n_head, work.sequence_length, work.head_size)
    inputs = [torch.randn(shape, device=device, dtype=work.dtype, requires_grad=True) for _ in range(3)]
    return inputs, torch.randn(shape, device=device, dtype=work.dtype)


def free(device: torch.device) -> None:
    """Gives back all that the attempt before held, so that no row has memory of another."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def expected_bytes(work: Work, done: list[dict[str, Any]]) -> float:
    """Peak that shorter contexts predict: a T + b T² through the last two, or the tensors of attention as written."""
    known = [row for row in done if row.get("peak_bytes")]
    length = work.sequence_length
    if len(known) >= 2:
        (t1, y1), (t2, y2) = ((row["sequence_length"], row["peak_bytes"]) for row in known[-2:])
        square = max(0.0, (y2 / t2 - y1 / t1) / (t2 - t1))
        return (y2 / t2 - square * t2) * length + square * length**2
    rows = work.batch_size * work.n_head * length * work.dtype.itemsize
    scores = SCORES if work.backend == "math" or (work.backend == "flex" and not work.compiled) else 0.0
    return rows * (8.0 * work.head_size + scores * length)
