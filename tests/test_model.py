"""The decoder: the same function as transformers' GPT-2 and Llama, causal, and drawn alike everywhere."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from workflow_scripts.lib.model import Decoder, build_decoder
from workflow_scripts.lib.specs import ModelShape

GPT2 = ModelShape(
    architecture="gpt2", n_layer=3, n_head=4, n_embd=32, n_inner=80, vocab_size=61, sequence_length=24, bias=True
)
LLAMA = dataclasses.replace(GPT2, architecture="llama", bias=False)
BARE = dataclasses.replace(GPT2, bias=False)
both = pytest.mark.parametrize("shape", [GPT2, LLAMA], ids=lambda shape: shape.architecture)


def tokens(batch=2, length=20, seed=0) -> torch.Tensor:
    return torch.randint(GPT2.vocab_size, (batch, length), generator=torch.Generator().manual_seed(seed))


def roughened(decoder: Decoder) -> Decoder:
    """Gives every parameter random values large enough that a bias or norm left out would show."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return decoder.eval()


def transformers_gpt2(decoder: Decoder) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = decoder.shape
    config = GPT2Config(
        vocab_size=shape.vocab_size, n_positions=shape.sequence_length, n_embd=shape.n_embd, n_layer=shape.n_layer,
        n_head=shape.n_head, n_inner=shape.n_inner, activation_function="gelu_new",
    )  # fmt: skip
    names = {
        "token_embedding": "transformer.wte", "position_embedding": "transformer.wpe", "blocks": "transformer.h",
        "attention_norm": "ln_1", "attention": "attn", "qkv": "c_attn", "proj": "c_proj", "mlp_norm": "ln_2",
        "up": "c_fc", "down": "c_proj", "norm": "transformer.ln_f",
    }  # fmt: skip
    state = {}
    for name, value in decoder.state_dict().items():
        matrix = name.endswith(("qkv.weight", "proj.weight", "up.weight", "down.weight"))
        state[".".join(names.get(part, part) for part in name.split("."))] = value.T if matrix else value  # its Conv1D
    return loaded(GPT2LMHeadModel(config), state | {"lm_head.weight": state["transformer.wte.weight"]})


def transformers_llama(decoder: Decoder) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = decoder.shape
    config = LlamaConfig(
        vocab_size=shape.vocab_size, hidden_size=shape.n_embd, intermediate_size=shape.n_inner, rms_norm_eps=1e-5,
        num_hidden_layers=shape.n_layer, num_attention_heads=shape.n_head, tie_word_embeddings=False,
        max_position_embeddings=shape.sequence_length,
    )  # fmt: skip
    ours = decoder.state_dict()
    state = {
        "model.embed_tokens.weight": ours["token_embedding.weight"],
        "model.norm.weight": ours["norm.weight"],
        "lm_head.weight": ours["head.weight"],
    }
    for layer in range(shape.n_layer):
        block, theirs = f"blocks.{layer}.", f"model.layers.{layer}."
        q, k, v = ours[block + "attention.qkv.weight"].chunk(3)
        gate, up = ours[block + "mlp.up.weight"].chunk(2)
        state |= {
            theirs + "self_attn.q_proj.weight": q,
            theirs + "self_attn.k_proj.weight": k,
            theirs + "self_attn.v_proj.weight": v,
            theirs + "self_attn.o_proj.weight": ours[block + "attention.proj.weight"],
            theirs + "mlp.gate_proj.weight": gate,
            theirs + "mlp.up_proj.weight": up,
            theirs + "mlp.down_proj.weight": ours[block + "mlp.down.weight"],
            theirs + "input_layernorm.weight": ours[block + "attention_norm.weight"],
            theirs + "post_attention_layernorm.weight": ours[block + "mlp_norm.weight"],
        }
    return loaded(LlamaForCausalLM(config), state)


def loaded(model: nn.Module, state: dict[str, torch.Tensor]) -> nn.Module:
    model.load_state_dict(state, strict=True)
    return model.eval()


@pytest.mark.parametrize(("shape", "reference"), [(GPT2, transformers_gpt2), (LLAMA, transformers_llama)])
@torch.no_grad()
def test_logits_are_those_of_transformers(shape, reference):
    decoder, x = roughened(build_decoder(shape, "cpu", 1)), tokens()
    expected = reference(decoder)(x).logits
    assert expected.std() > 1
    torch.testing.assert_close(decoder(x), expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("shape", [GPT2, BARE, LLAMA])
@torch.no_grad()
def test_no_output_sees_a_later_token(shape):
    decoder, x = roughened(build_decoder(shape, "cpu", 1)), tokens()
    changed = x.clone()
    changed[:, 11] = (x[:, 11] + 1) % shape.vocab_size
    before, after = decoder(x), decoder(changed)
    assert torch.equal(before[:, :11], after[:, :11])
    assert ((before - after).abs().amax(-1)[:, 11:] > 1e-4).all()  # and every later output sees it


@both
@torch.no_grad()
def test_an_untrained_model_knows_nothing(shape):
    x = tokens(batch=8, length=24)
    loss = build_decoder(shape, "cpu", 1).loss(x[:, :-1], x[:, 1:])
    assert float(loss) == pytest.approx(math.log(shape.vocab_size), abs=0.05)


@both
def test_loss_is_the_cross_entropy_of_the_logits(shape):
    decoder, x, y = roughened(build_decoder(shape, "cpu", 1)), tokens(), tokens(seed=1)
    chosen = decoder(x).log_softmax(-1).gather(-1, y[..., None])
    torch.testing.assert_close(decoder.loss(x, y), -chosen.mean())
    with torch.autocast("cpu", torch.bfloat16):
        assert decoder(x).dtype == torch.bfloat16
        assert decoder.loss(x, y).dtype == torch.float32


@both
def test_weights_depend_on_the_seed_alone(shape):
    torch.manual_seed(1)
    first = build_decoder(shape, "cpu", 5)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    second = build_decoder(dataclasses.replace(shape, dropout=0.3), "cpu", 5, attention="math", checkpointing=True)
    assert torch.equal(before, torch.get_rng_state())
    other, on_device = build_decoder(shape, "cpu", 6), build_decoder(shape, "cpu", 5, draw_on="device")
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name])
        assert torch.equal(weight, on_device.state_dict()[name])
        assert torch.equal(weight, other.state_dict()[name]) == (weight.ndim == 1)


def test_weights_are_gpt2s():
    decoder = build_decoder(dataclasses.replace(GPT2, n_embd=256, n_inner=1024), "cpu", 1)
    for name, parameter in decoder.named_parameters():
        mean, std = parameter.detach().mean().item(), parameter.detach().std().item()
        if parameter.ndim == 1:
            assert (mean, std) == (1.0 if name.endswith("norm.weight") else 0.0, 0.0)
        else:
            residual = name.endswith(("proj.weight", "down.weight"))
            assert std == pytest.approx(0.02 / math.sqrt(6) if residual else 0.02, rel=0.03)


@both
def test_a_decoder_survives_meta_and_its_state(shape):
    with torch.device("meta"):
        decoder = Decoder(shape)
    assert all(parameter.is_meta for parameter in decoder.parameters())
    decoder.to_empty(device="cpu").init_weights(1)
    direct = Decoder(shape)
    direct.load_state_dict(decoder.state_dict())
    x = tokens()
    assert torch.equal(decoder(x), direct(x))  # rotary tables too, which no state holds


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@both
def test_checkpointing_changes_no_gradient(shape, dropout):
    gradients = []
    for checkpointing in (False, True):
        decoder = build_decoder(dataclasses.replace(shape, dropout=dropout), "cpu", 1, checkpointing=checkpointing)
        torch.manual_seed(3)
        decoder.loss(tokens(), tokens(seed=1)).backward()
        gradients.append([parameter.grad for parameter in decoder.parameters()])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, checkpointed)


@both
def test_the_named_backend_is_used(shape):
    math_, flash = (build_decoder(shape, "cpu", 1, attention=name) for name in ("math", "flash"))
    torch.testing.assert_close(math_(tokens()), flash(tokens()), atol=1e-5, rtol=1e-5)
    for decoder, operator in ((math_, "aten::_safe_softmax"), (flash, "flash_attention")):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            decoder(tokens())
        assert any(operator in event.name for event in profile.events())
    with pytest.raises(RuntimeError, match="kernel"):
        build_decoder(shape, "cpu", 1, attention="cudnn")(tokens())


def test_dropout_drops_only_in_training():
    decoder = build_decoder(dataclasses.replace(GPT2, dropout=0.5), "cpu", 1)
    assert not torch.equal(decoder(tokens()), decoder(tokens()))
    decoder.eval()
    assert torch.equal(decoder(tokens()), decoder(tokens()))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"n_head": 5}, "n_embd is 32: it must be a multiple of n_head, which is 5"),
        ({"architecture": "llama", "n_head": 32}, "n_embd / n_head is 1: it must be even"),
        ({"n_layer": 0}, "n_layer is 0: it must be at least 1"),
        ({"dropout": 1.0}, "dropout is 1.0"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        Decoder(dataclasses.replace(GPT2, **change))


@both
def test_more_tokens_than_context_are_refused(shape):
    with pytest.raises(ValueError, match="25 tokens in a sequence: the model's sequence_length is 24"):
        build_decoder(shape, "cpu", 1)(tokens(length=25))
