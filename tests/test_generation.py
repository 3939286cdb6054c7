"""Text from a model: seeded, inside its context, by the right distribution."""

import pytest
import torch

from tests import tiny_run
from workflow_scripts.lib.generation import generate, pick
from workflow_scripts.lib.model import build_decoder


class Recorder(torch.nn.Module):
    """Stands for a model whose next token is always the last one plus 1, modulo 5; notes how much it was shown."""

    def __init__(self):
        super().__init__()
        self.shown = []

    def forward(self, tokens):
        self.shown.append(tokens.shape[1])
        assert not self.training
        return torch.nn.functional.one_hot((tokens + 1) % 5, 5) * 100.0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_it_continues_the_prompt_and_never_exceeds_the_context(temperature):
    model = Recorder()
    ids = generate(model, [3], 8, sequence_length=4, device="cpu", seed=0, temperature=temperature)
    assert ids == [4, 0, 1, 2, 3, 4, 0, 1]
    assert model.shown == [1, 2, 4, 4, 4, 4, 4, 4]
    assert model.training


def test_what_fills_a_window_is_not_seen():
    decoder = build_decoder(tiny_run.SHAPE, "cpu", seed=3).eval()
    ids = [0, 5, 2]
    with torch.no_grad():
        for _ in range(20):
            ids.append(int(decoder(torch.tensor([ids[-16:]]))[0, -1].argmax()))
    assert generate(decoder, ids[:3], 20, sequence_length=16, device="cpu", seed=0, temperature=0.0) == ids[3:]


def test_equal_seeds_write_equal_text_and_torchs_own_random_state_is_left_alone():
    decoder = build_decoder(tiny_run.SHAPE, "cpu", seed=3)
    state = torch.get_rng_state()
    texts = [generate(decoder, [0], 30, sequence_length=16, device="cpu", seed=seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert torch.equal(state, torch.get_rng_state())


def test_draws_follow_the_distribution():
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    draws = (torch.arange(1000) + 0.5) / 1000
    counts = torch.stack([pick(logits, draw, 1.0, None) for draw in draws]).bincount(minlength=4)
    assert counts.tolist() == pytest.approx([100, 200, 300, 400], abs=1)
    colder = torch.stack([pick(logits, draw, 0.5, None) for draw in draws]).bincount(minlength=4)
    assert colder.tolist() == pytest.approx([1000 / 30, 4000 / 30, 9000 / 30, 16000 / 30], abs=1)
    top = torch.stack([pick(logits, draw, 1.0, 2) for draw in draws]).bincount(minlength=4)
    assert top.tolist() == pytest.approx([0, 0, 3000 / 7, 4000 / 7], abs=1)
    assert pick(logits, torch.tensor(0.999999), 1.0, 1) == 3


def test_nothing_is_written_where_nothing_is_asked_for():
    assert generate(Recorder(), [1], 0, sequence_length=4, device="cpu", seed=0) == []


@pytest.mark.parametrize(("prompt", "settings"), [([], {}), ([1], {"temperature": -1.0}), ([1], {"top_k": 0})])
def test_nonsense_is_refused(prompt, settings):
    with pytest.raises(ValueError, match="at least"):
        generate(Recorder(), prompt, 3, sequence_length=4, device="cpu", seed=0, **settings)
