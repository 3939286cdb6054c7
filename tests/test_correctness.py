"""Correct before fast: what is right passes, and each fault that the probes are for is caught."""

import pytest
import torch

from tests.tiny_run import CPU
from workflow_scripts.lib import correctness, model, step
from workflow_scripts.lib.correctness import check_architecture, check_pairs
from workflow_scripts.lib.specs import StepSpec, to_json

VOCABULARY = 40
EAGER = StepSpec(batch_size=correctness.BATCH, precision="fp32", execution="eager")
COMPILED = StepSpec(batch_size=correctness.BATCH, precision="fp32", execution="compiled")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(correctness, "LENGTHS", (32,))


@pytest.fixture
def compiler(monkeypatch):
    """Puts a function of the loss in the compiler's place, so that a test decides what it gets wrong."""

    def put(compiled):
        monkeypatch.setattr(step, "require", lambda execution, device: None)
        monkeypatch.setattr(step, "compile_loss", lambda decoder: compiled(decoder.loss))

    return put


def failures(spec=EAGER, architecture="gpt2"):
    return check_architecture(architecture, spec, CPU, VOCABULARY)["failures"]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_a_cpu_that_is_right_passes(precision, architecture):
    spec = StepSpec(batch_size=correctness.BATCH, precision=precision, execution="eager")
    found = check_architecture(architecture, spec, CPU, VOCABULARY)
    assert found["failures"] == []
    assert found["causality"] == 0.0
    assert found["change_after"] > 0.1
    assert found["steps"] is None


def test_compiled_steps_that_are_right_pass(compiler):
    compiler(lambda loss: loss)
    found = check_architecture("gpt2", COMPILED, CPU, VOCABULARY)
    assert found["failures"] == []
    assert found["steps"] < 1e-6  # compiled, short attention is plain products; eagerly, a fused kernel
    assert found["causality"] < 1e-6


def leak(monkeypatch, mask):
    whole = torch.nn.functional.scaled_dot_product_attention

    def attention(q, k, v, dropout_p=0.0, is_causal=False):
        return whole(q, k, v, attn_mask=mask(q.shape[-2]))

    monkeypatch.setattr(model.F, "scaled_dot_product_attention", attention)


MASKS = {
    "none": lambda T: torch.ones(T, T, dtype=torch.bool),
    "one position late": lambda T: torch.ones(T, T, dtype=torch.bool).tril(1),
    "by groups of four queries": lambda T: torch.arange(T)[None] <= torch.arange(T)[:, None] // 4 * 4 + 3,
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("spec", [EAGER, COMPILED], ids=["eager", "compiled"])
def test_a_mask_that_leaks_is_caught(monkeypatch, compiler, mask, spec):
    compiler(lambda loss: loss)
    leak(monkeypatch, mask)
    assert any("the causal mask leaks" in failure for failure in failures(spec))


def test_a_mask_that_leaks_is_caught_in_half_precision(monkeypatch):
    leak(monkeypatch, MASKS["by groups of four queries"])
    spec = StepSpec(batch_size=correctness.BATCH, precision="bf16", execution="eager")
    assert any("the causal mask leaks" in failure for failure in failures(spec, "llama"))


def test_a_probe_that_sees_nothing_is_no_evidence(monkeypatch):
    right = model.Decoder.forward
    monkeypatch.setattr(model.Decoder, "forward", lambda self, tokens: right(self, torch.zeros_like(tokens)))
    assert any("blind" in failure for failure in failures())


def test_a_loss_scaled_by_two_is_caught(monkeypatch):
    right = model.Decoder.loss
    monkeypatch.setattr(model.Decoder, "loss", lambda self, *batch: 2.0 * right(self, *batch))
    found = failures()
    assert any("the loss of step 0 differs" in failure for failure in found)
    assert any("the gradient norm of step 0 differs" in failure for failure in found)


def test_a_gradient_that_is_wrong_though_the_loss_is_right_is_caught(monkeypatch):
    right = model.Decoder.loss

    def wrong(self, *batch):
        loss = right(self, *batch)
        return loss.detach() + 2.0 * (loss - loss.detach())

    monkeypatch.setattr(model.Decoder, "loss", wrong)
    assert [failure.split(" differs")[0] for failure in failures()] == ["gpt2: the gradient norm of step 0"]


def test_compiled_steps_that_do_something_else_are_caught(compiler):
    compiler(lambda loss: lambda *batch: loss(*batch) * (1.0 if batch[0][0, 0] % 2 else 1.01))
    assert any("differ from those of eager steps" in failure for failure in failures(COMPILED))


def test_compiled_steps_that_learn_nothing_are_caught(compiler):
    compiler(lambda loss: lambda *batch: loss(*batch) * 1e-12 + loss(*batch).detach())
    assert any("differ from those of eager steps" in failure for failure in failures(COMPILED))


def test_a_loss_that_is_not_a_number_is_caught(monkeypatch):
    right = model.Decoder.loss
    monkeypatch.setattr(model.Decoder, "loss", lambda self, *batch: right(self, *batch) * float("nan"))
    assert any("the loss is not finite" in failure for failure in failures())


def pair(precision, execution="eager"):
    return {"precision": precision, "execution": execution, "architectures": ["gpt2"]}


def check(*pairs):
    arguments = {"device": to_json(CPU), "pairs": list(pairs), "vocab_size": VOCABULARY}
    return check_pairs(arguments, lambda message: None)["pairs"]


def test_what_a_cpu_does_not_have_is_unavailable_and_the_rest_is_checked():
    tried = check(pair("tf32"), pair("fp32", "graphed"), pair("fp32"))
    assert [one["status"] for one in tried] == ["unavailable", "unavailable", "ok"]
    assert "tf32 exists" in tried[0]["reason"]
    assert tried[2]["result"]["checks"][0]["failures"] == []


def test_after_an_unforeseen_error_the_process_says_nothing_more(monkeypatch):
    monkeypatch.setattr(correctness, "reference", lambda *batch: 1 / 0)
    tried = check(pair("fp32"), pair("bf16"))
    assert [(one["status"], one["reason"]) for one in tried] == [("error", "ZeroDivisionError: division by zero")]


def test_the_context_shrinks_as_the_vocabulary_grows():
    assert correctness.BATCH >= 9
    lengths = [correctness.small_shape("gpt2", n).sequence_length for n in (100, 50_000)]
    assert lengths == [32, 32]


def test_large_vocabularies_keep_the_logits_few(monkeypatch):
    monkeypatch.setattr(correctness, "LENGTHS", (128, 64, 32, 16))
    for n in (100, 10_000, 50_304):
        shape = correctness.small_shape("llama", n)
        assert correctness.BATCH * shape.sequence_length * n <= 12 * 16 * 50_304


@pytest.mark.parametrize("fault", ["gradient", "loss"])
def test_accumulation_that_scales_is_caught(monkeypatch, fault):
    build = correctness.build

    def scaled(shape, spec, device):
        made = build(shape, spec, device)
        if spec.accumulation > 1 and fault == "gradient":
            made.share.fill_(1.0)  # each micro-batch counts whole
        elif spec.accumulation > 1:
            run = made.run

            def run_and_scale():
                run()
                made.loss.mul_(spec.accumulation)

            made.run = run_and_scale
        return made

    monkeypatch.setattr(correctness, "build", scaled)
    found = check_architecture("gpt2", EAGER, CPU, VOCABULARY)
    assert found["accumulation"] == pytest.approx(3.0, rel=0.05)
    assert any("micro-batches" in failure for failure in found["failures"])
