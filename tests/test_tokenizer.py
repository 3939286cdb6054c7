"""Tokenizers: what they encode they decode, and the same text makes the same tokenizer."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_scripts.lib.tokenizer import (
    BytePairTokenizer,
    CharacterTokenizer,
    _pieces,
    tokenizer_from,
    train_tokenizer,
)

ENGLISH = "In the beginning God created the heaven and the earth.\n\nAnd the earth was without form, and void; " * 40


@functools.cache
def trained_bpe() -> BytePairTokenizer:
    return BytePairTokenizer.train(ENGLISH, 290)


@given(st.text(min_size=1))
def test_characters_are_inverted_and_sorted(text):
    tokenizer = CharacterTokenizer(set(text))
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert [sorted(set(text))[i] for i in ids] == list(text)
    assert tokenizer_from({"tokenizer": tokenizer.to_json()}).encode(text) == ids


@given(st.text(min_size=1), st.characters())
def test_a_character_outside_the_vocabulary_is_named(text, other):
    tokenizer = CharacterTokenizer(set(text) - {other} | {"a" if other != "a" else "b"})
    with pytest.raises(
        ValueError, match=rf"U\+{ord(other):04X}.* is not among the {tokenizer.vocab_size} of the corpus"
    ):
        tokenizer.encode(other)


@given(st.text())
def test_bpe_round_trips_any_text(text):
    assert trained_bpe().decode(trained_bpe().encode(text)) == text


@given(st.text("ab \n\t.'s\x1c\x85\u3000你"), st.integers(1, 5))
def test_bpe_of_pieces_is_that_of_the_whole(text, n_characters):
    pieces = list(_pieces(text, n_characters))
    assert "".join(pieces) == text
    assert [i for piece in pieces for i in trained_bpe().encode(piece)] == trained_bpe().encode(text)


def test_bpe_is_the_same_in_every_process_and_after_json():
    code = (
        "import sys, json; from workflow_scripts.lib.tokenizer import BytePairTokenizer as T;"
        "print(json.dumps(T.train(sys.stdin.read(), 290).to_json()), 'torch' in sys.modules)"
    )
    once = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        input=ENGLISH,
        text=True,
        capture_output=True,
        check=True,
    )
    described, imports_torch = once.stdout.rsplit(maxsplit=1)
    assert json.loads(described) == trained_bpe().to_json()
    assert imports_torch == "False"
    again = tokenizer_from({"tokenizer": json.loads(described)})
    assert again.encode("the heavens ž") == trained_bpe().encode("the heavens ž")
    assert again.vocab_size == 290


@pytest.mark.parametrize(
    ("kind", "vocab_size", "fault"),
    [
        ("bpe", 255, "vocab_size: 255 is below the 256"),
        ("bpe", 9_999, "vocab_size: 9999 tokens cannot be learnt, as the train split gives only"),
        ("bpe", None, "vocab_size: null"),
        ("character", 99, "vocab_size: 99 differs from the 26 characters"),
        ("words", None, "tokenizer: 'words' is none of"),
    ],
)
def test_an_impossible_tokenizer_is_refused(kind, vocab_size, fault):
    with pytest.raises(ValueError, match=f"^corpus.{fault}.*$"):
        train_tokenizer({"tokenizer": kind, "vocab_size": vocab_size}, ENGLISH, len(ENGLISH))
