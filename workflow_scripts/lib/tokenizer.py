"""Text to ids and back: one id per character, or byte-pair encoding of the text's UTF-8 bytes."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers

N_BYTE_VALUES = 256


class Tokenizer(ABC):
    """Encodes text as ids in `range(vocab_size)`, and decodes them."""

    vocab_size: int

    @abstractmethod
    def encode_array(self, text: str) -> np.ndarray:
        """Encodes `text` as `(n_tokens,) uint32`."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Decodes ids; for those that `encode` gave, this is the text again."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Gives the plain values from which `tokenizer_from` builds this tokenizer again."""

    def encode(self, text: str) -> list[int]:
        return self.encode_array(text).tolist()


class CharacterTokenizer(Tokenizer):
    """One id per code point: its rank in the sorted vocabulary."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = sorted(vocabulary)
        self.vocab_size = len(self.vocabulary)
        self._codes = _code_points("".join(self.vocabulary))

    def encode_array(self, text: str) -> np.ndarray:
        """Encodes `text` as `(n_characters,) uint32`.

        Raises:
            ValueError: a character is not in the vocabulary.
        """
        codes = _code_points(text)
        ids = np.searchsorted(self._codes, codes).astype(np.uint32)
        unknown = self._codes[np.minimum(ids, self.vocab_size - 1)] != codes
        if unknown.any():
            code = int(codes[unknown.argmax()])
            raise ValueError(
                f"character {chr(code)!r} (U+{code:04X}) is not among the {self.vocab_size} of the corpus: "
                "leave it out, or set corpus.tokenizer: bpe"
            )
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.vocabulary[i] for i in ids)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "character", "vocab_size": self.vocab_size, "vocabulary": self.vocabulary}


class BytePairTokenizer(Tokenizer):
    """Byte-level byte-pair encoding as in GPT-2: each of the 256 bytes has an id, so any text can be encoded.

    Ids that cut a character in two decode to U+FFFD there; `encode` gives none such at the ends of a text.
    """

    def __init__(self, model: tokenizers.Tokenizer) -> None:
        self._model = model
        self.vocab_size = model.get_vocab_size()

    @classmethod
    def train(cls, text: str, vocab_size: int) -> "BytePairTokenizer":
        """Learns merges until there are `vocab_size` tokens; the same text gives the same tokens.

        Raises:
            ValueError: `vocab_size` does not hold the 256 bytes, or the text has too few pairs to merge.
        """
        if vocab_size < N_BYTE_VALUES:
            raise ValueError(f"corpus.vocab_size: {vocab_size} is below the {N_BYTE_VALUES} bytes that bpe starts from")
        model = tokenizers.Tokenizer(tokenizers.models.BPE())
        model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        model.decoder = tokenizers.decoders.ByteLevel()
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
        model.train_from_iterator(_pieces(text), trainer)
        if model.get_vocab_size() != vocab_size:
            raise ValueError(
                f"corpus.vocab_size: {vocab_size} tokens cannot be learnt, as the train split gives only "
                f"{model.get_vocab_size()}: set that or less, or use a longer text"
            )
        return cls(model)

    def encode_array(self, text: str) -> np.ndarray:
        ids = [np.array(self._model.encode(piece).ids, np.uint32) for piece in _pieces(text)]
        return np.concatenate(ids) if ids else np.empty(0, np.uint32)

    def decode(self, ids: Sequence[int]) -> str:
        return self._model.decode([int(i) for i in ids])

    def to_json(self) -> dict[str, Any]:
        return {"kind": "bpe", "vocab_size": self.vocab_size, "model": json.loads(self._model.to_str())}


def train_tokenizer(config: Mapping[str, Any], text: str, n_train: int) -> Tokenizer:
    """Makes the tokenizer that a corpus config asks for.

    Args:
        config: the config's `corpus`, of which `tokenizer` and `vocab_size` are read.
        text: the whole text; its characters are the vocabulary of `character`.
        n_train: characters of the train split, which is all that `bpe` learns from.

    Raises:
        ValueError: the kind is unknown, or `vocab_size` does not suit it.
    """
    vocab_size = config.get("vocab_size")
    match config["tokenizer"]:
        case "character":
            tokenizer = CharacterTokenizer(set(text))
            if vocab_size not in (None, tokenizer.vocab_size):
                raise ValueError(
                    f"corpus.vocab_size: {vocab_size} differs from the {tokenizer.vocab_size} characters of the text: "
                    "leave it out with tokenizer: character"
                )
            return tokenizer
        case "bpe":
            if vocab_size is None:
                raise ValueError("corpus.vocab_size: null with tokenizer: bpe: state the number of tokens, 256 or more")
            return BytePairTokenizer.train(text[:n_train], vocab_size)
        case other:
            raise ValueError(f"corpus.tokenizer: {other!r} is none of character, bpe")


def tokenizer_from(corpus: Mapping[str, Any]) -> Tokenizer:
    """Builds the tokenizer again from what `corpus.json` holds."""
    values = corpus["tokenizer"]
    if values["kind"] == "character":
        return CharacterTokenizer(values["vocabulary"])
    return BytePairTokenizer(tokenizers.Tokenizer.from_str(json.dumps(values["model"])))


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _pieces(text: str, n_characters: int = 65_536) -> Iterator[str]:
    """Cuts `text` where, after `n_characters` or more, a word meets a space or a line break.

    The byte-level pattern always cuts there, so pieces give the tokens of the whole text, in less memory.
    """
    pattern = rf"(?s).{{1,{n_characters}}}(?:.*?\S(?=[ \n])|.*)"
    return (match.group() for match in re.finditer(pattern, text))
