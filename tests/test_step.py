"""The training step: that it computes what it says, that treatments take effect, and that it can be taken up again."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from tests.tiny_run import ADAMW, CPU, SHAPE, STEP
from workflow_scripts.lib.outcome import Unavailable
from workflow_scripts.lib.step import TrainStep

TOKENS = np.random.default_rng(0).integers(SHAPE.vocab_size, size=2000).astype(np.uint8)
SGD = dataclasses.replace(
    ADAMW, name="sgd", learning_rate=0.05, warmup_steps=0, schedule="constant", weight_decay=0.0, grad_clip=0.0
)


def build(optimizer=ADAMW, model=SHAPE, n_steps=100, seed=1, **changes) -> TrainStep:
    return TrainStep.build(model, dataclasses.replace(STEP, **changes), optimizer, CPU, TOKENS, n_steps, seed)


def losses(step: TrainStep, n: int) -> list[float]:
    found = []
    for _ in range(n):
        step.run()
        found.append(float(step.loss))
    return found


def weights(step: TrainStep) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in step.decoder.parameters()])


def test_the_step_is_the_textbooks():
    clipped = dataclasses.replace(ADAMW, grad_clip=0.5)
    step, plain = build(clipped), build()
    plain_adamw = torch.optim.AdamW(
        [{"params": [p], "weight_decay": 0.1 * (p.ndim >= 2)} for p in plain.decoder.parameters()],
        betas=(ADAMW.beta1, ADAMW.beta2),
        eps=1e-8,
        foreach=False,
    )
    for n in range(20):
        step.run()
        windows = TOKENS[step.batches.offsets[n].numpy().reshape(4, 1) + np.arange(17)].astype(np.int64)
        batch = torch.from_numpy(windows)
        loss = plain.decoder.loss(batch[:, :-1], batch[:, 1:])
        plain_adamw.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(plain.decoder.parameters(), 0.5)
        for group in plain_adamw.param_groups:
            group["lr"] = step.learning_rate(n)
        plain_adamw.step()
        assert float(step.loss) == pytest.approx(float(loss.detach()), abs=1e-6)
        assert float(step.grad_norm) == pytest.approx(float(norm), rel=1e-4)
    torch.testing.assert_close(weights(step), weights(plain), rtol=1e-4, atol=1e-5)


def test_it_learns():
    text = np.tile(np.arange(8, dtype=np.uint8), 100)
    step = TrainStep.build(SHAPE, STEP, ADAMW, CPU, text, 40, seed=1)
    found = losses(step, 40)
    assert found[0] == pytest.approx(np.log(SHAPE.vocab_size), abs=0.1)
    assert found[-1] < 0.5 * found[0]


def test_accumulation_is_the_same_step():
    # SGD without clipping: Adam, or a clipped gradient, would hide a gradient that is wrong by a factor.
    whole = losses(build(SGD, batch_size=16), 60)
    parts = build(SGD, batch_size=16, accumulation=4)
    np.testing.assert_allclose(losses(parts, 60), whole, atol=1e-5, rtol=0)
    assert parts.observed()["accumulation"] == 4


def test_accumulation_must_divide_the_batch():
    with pytest.raises(ValueError, match="batch_size is 4: it must be a multiple of accumulation, which is 3"):
        build(accumulation=3)


def test_another_optimizer_shows_in_the_losses_from_the_second_on():
    adamw, sgd = losses(build(), 3), losses(build(SGD), 3)
    assert adamw[0] == sgd[0]
    assert adamw[1] != sgd[1]
    assert adamw[2] != sgd[2]


@pytest.mark.parametrize("name", ["adafactor", "muon"])
def test_every_optimizer_learns(name):
    text = np.tile(np.arange(8, dtype=np.uint8), 100)
    spec = dataclasses.replace(ADAMW, name=name, learning_rate=0.02, momentum=0.95)
    step = TrainStep.build(SHAPE, STEP, spec, CPU, text, 30, seed=1)
    found = losses(step, 30)
    assert found[-1] < 0.85 * found[0]
    observed = step.observed()
    assert observed["optimizer_class"] == {"adafactor": "Adafactor", "muon": "MuonWithAdamW"}[name]
    assert observed["rate_index"] == 29
    assert observed["learning_rates"] == pytest.approx([step.learning_rate(29)], rel=1e-6)


def test_clipping_bounds_the_update_and_reports_the_norm_before():
    free, clipped = build(SGD), build(dataclasses.replace(SGD, grad_clip=0.01))
    before = weights(free).clone()
    free.run()
    clipped.run()
    assert float(free.grad_norm) == pytest.approx(float(clipped.grad_norm), rel=1e-6)
    assert float(free.grad_norm) > 0.01
    assert float((weights(free) - before).norm()) == pytest.approx(0.05 * float(free.grad_norm), rel=1e-3)
    assert float((weights(clipped) - before).norm()) == pytest.approx(0.05 * 0.01, rel=1e-2)


def test_bf16_takes_effect_and_is_seen():
    single, half = build(), build(precision="bf16")
    differing = [a != b for a, b in zip(losses(single, 10), losses(half, 10), strict=True)]
    assert sum(differing) >= 9
    assert single.observed()["linear_output_dtype"] == "float32"
    observed = half.observed()
    assert observed["linear_output_dtype"] == observed["logits_dtype"] == "bfloat16"
    assert observed["parameter_dtype"] == "float32"
    assert half.loss.dtype == torch.float32


def test_fp16_scales_the_loss_and_counts_the_steps_that_it_skips():
    step = build(SGD, precision="fp16")
    before = weights(step).clone()
    step.scaler.load_state_dict({**step.scaler.state_dict(), "scale": 2.0**40})  # far too large: gradients overflow
    step.run()
    observed = step.observed()
    assert observed["linear_output_dtype"] == "float16"
    assert observed["skipped_steps"] == 1
    assert observed["loss_scale"] == 2.0**39
    torch.testing.assert_close(weights(step), before, rtol=0, atol=0)

    step.scaler.load_state_dict({**step.scaler.state_dict(), "scale": 2.0**10})
    step.run()
    assert step.observed()["skipped_steps"] == 1
    assert float((weights(step) - before).norm()) == pytest.approx(0.05 * float(step.grad_norm), rel=0.01)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_only_fp16_counts_skipped_steps(precision):
    assert build(precision=precision).observed()["skipped_steps"] is None


def test_tf32_is_refused_where_it_does_not_exist():
    with pytest.raises(Unavailable, match="tf32 exists on NVIDIA GPUs"):
        build(precision="tf32")


def test_graphed_is_refused_off_cuda():
    with pytest.raises(Unavailable, match="graphed captures a CUDA graph, which cpu does not have"):
        build(execution="graphed")


@pytest.mark.parametrize(("attention", "dropout"), [("efficient", 0.0), ("cudnn", 0.0), ("flash", 0.1)])
def test_attention_that_does_not_exist_here_is_refused_and_not_replaced(attention, dropout):
    with pytest.raises(Unavailable, match=f"no {attention} attention"):
        build(model=dataclasses.replace(SHAPE, dropout=dropout), attention=attention)


def test_a_missing_compiler_is_named(monkeypatch):
    from torch._inductor import config

    monkeypatch.setenv("CXX", "no-such-compiler")
    with (
        config.patch({"cpp.cxx": (None, "no-such-compiler")}),
        pytest.raises(Unavailable, match=r"no C\+\+ compiler: no-such-compiler was not found"),
    ):
        build(execution="compiled")


def test_compiled_steps_agree_with_eager_ones():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # they count for the whole process
    smallest = dataclasses.replace(SHAPE, n_layer=1, n_head=1, n_embd=16, n_inner=16)  # compiling is slow
    eager, compiled = build(model=smallest), build(model=smallest, execution="compiled")
    np.testing.assert_allclose(losses(compiled, 5), losses(eager, 5), atol=1e-3, rtol=0)
    assert eager.offsets_sha256 == compiled.offsets_sha256
    observed = compiled.observed()
    assert (observed["n_graphs"], observed["n_recompiles"]) == (1, 0)
    assert observed["compile_s"] > 0


def test_with_checkpointing_all_blocks_share_one_compiled_graph():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    small = dataclasses.replace(SHAPE, n_layer=3, n_head=1, n_embd=16, n_inner=16)
    eager, compiled = build(model=small), build(model=small, execution="compiled", checkpointing=True)
    np.testing.assert_allclose(losses(compiled, 5), losses(eager, 5), atol=1e-3, rtol=0)
    observed = compiled.observed()
    assert (observed["n_graphs"], observed["n_recompiles"]) == (3, 0)


def test_the_same_seed_gives_the_same_weights_and_text_and_another_does_not():
    first, again, other = build(seed=1), build(seed=1), build(seed=2)
    torch.testing.assert_close(weights(first), weights(again), rtol=0, atol=0)
    assert first.offsets_sha256 == again.offsets_sha256
    assert not torch.equal(weights(first), weights(other))
    assert first.offsets_sha256 != other.offsets_sha256
    assert losses(first, 3) == losses(again, 3)


@pytest.mark.parametrize("name", ["adamw", "sgd", "adafactor", "muon"])
def test_a_training_is_taken_up_again_bit_for_bit(name):
    model = dataclasses.replace(SHAPE, dropout=0.2)
    spec = dataclasses.replace(ADAMW, name=name, momentum=0.9)
    whole = build(spec, model)
    expected = losses(whole, 8)

    first = build(spec, model)
    losses(first, 4)
    state = copy.deepcopy(first.state_dict())
    torch.manual_seed(99)  # another process would stand elsewhere
    second = build(spec, model)
    second.load_state_dict(state)
    assert second.steps_done == 4
    assert losses(second, 4) == expected[4:]
    torch.testing.assert_close(weights(second), weights(whole), rtol=0, atol=0)


def test_fp16_takes_its_scale_along():
    first = build(precision="fp16")
    first.scaler.load_state_dict({**first.scaler.state_dict(), "scale": 2.0**40})
    first.run()
    second = build(precision="fp16")
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.observed()["loss_scale"] == 2.0**39
    assert second.observed()["skipped_steps"] == 1


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_warm_up_before_a_capture_leaves_no_trace(precision):
    model = dataclasses.replace(SHAPE, dropout=0.2)
    expected = losses(build(model=model, precision=precision), 6)
    step = build(model=model, precision=precision)
    for at in (0, 3):  # a fresh optimizer has no state yet, a resumed one has
        put_back = step._save()
        for _ in range(3):
            step._step()
        put_back()
        assert losses(step, 3) == expected[at : at + 3]


def test_when_all_batches_are_used_up_they_start_over():
    step = build(n_steps=3)
    for _ in range(4):
        step.run()
    assert int(step.cursor) == 1
    assert step.learning_rate(3) == step.learning_rate(0)


def test_parts_of_the_step_leave_alone_what_is_not_theirs():
    step, whole = build(), build()
    before = weights(step).clone()
    step.forward()
    assert all(parameter.grad is None for parameter in step.parameters)
    for _ in range(2):
        step.forward_backward()
        step.forward()
    torch.testing.assert_close(weights(step), before, rtol=0, atol=0)
    whole.run()
    assert float(step.loss) == float(whole.loss)
    step.optimizer_step()
    torch.testing.assert_close(weights(step), weights(whole), rtol=0, atol=0)


def test_reading_back_changes_nothing():
    model = dataclasses.replace(SHAPE, dropout=0.2)
    expected = losses(build(model=model), 4)
    observed, found = build(model=model), []
    for _ in range(4):
        found += losses(observed, 1)
        observed.observed()
    assert found == expected


def test_what_is_read_back_is_plain_and_complete():
    step = build()
    step.run()
    observed = step.observed()
    assert observed["threads"] == torch.get_num_threads() == CPU.threads
    assert observed["device"] == "cpu"
    assert observed["fused"] is True
    assert observed["attention_backend"] == "flash"
    assert build(attention="math").observed()["attention_backend"] == "math"
    assert observed["optimizer_state_bytes"] >= 8 * weights(step).numel()
    assert all(isinstance(value, str | int | float | bool | list | None) for value in observed.values())


def test_memory_that_nobody_counts_is_missing_and_not_zero():
    memory = build().memory()
    assert memory["peak_allocated_bytes"] is None
    assert memory["method"] == "not measured"
