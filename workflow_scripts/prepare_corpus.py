"""Reads the corpus, splits it, and turns it into tokens.

Inputs:
    none of the workflow's own: `spec` names the source and carries its digest.
Outputs:
    tokens: ids of the train split, then of the validation split; little-endian, in the narrowest unsigned type.
    corpus: JSON. `source`; `source_sha256` and `source_bytes` of the text in UTF-8; `n_characters`; `tokenizer`
        (`kind`, `vocab_size`, and `vocabulary` or `model`: all that decoding needs); `vocab_size`; `dtype`; `n_tokens`;
        `splits` (of each, `start` and `stop` in tokens, `n_bytes` of its text in UTF-8, `sha256` of its ids as they are
        stored); `tokens_sha256`.
"""

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np

from workflow_scripts.lib.sources import read_source, source_digest, split_at
from workflow_scripts.lib.tokenizer import train_tokenizer

log = logging.getLogger(__name__)


def main(*, tokens: Path, corpus: Path, spec: dict[str, Any]) -> None:
    """Writes `tokens` and `corpus` from the source that `spec["corpus"]` names.

    Raises:
        ValueError: the source cannot be used, or is no longer what it was when the workflow was read.
    """
    config = spec["corpus"]
    if source_digest(config) != spec["source_digest"]:
        raise ValueError(f"corpus.source: {config['source']!r} changed while the workflow ran: run it again")
    content = read_source(config)
    n_train = split_at(len(content), config["validation_fraction"])
    tokenizer = train_tokenizer(config, content, n_train)

    dtype = np.min_scalar_type(tokenizer.vocab_size - 1)
    stored, splits, start = b"", {}, 0
    for name, part in {"train": content[:n_train], "validation": content[n_train:]}.items():
        ids = tokenizer.encode_array(part).astype(dtype.newbyteorder("<"))
        splits[name] = {
            "start": start,
            "stop": start + len(ids),
            "n_bytes": len(part.encode()),
            "sha256": hashlib.sha256(ids.tobytes()).hexdigest(),
        }
        stored, start = stored + ids.tobytes(), start + len(ids)
        log.info("%s: %d characters, %d tokens", name, len(part), len(ids))

    described = {
        "source": config["path"] if config["source"] == "path" else config["source"],
        "source_sha256": hashlib.sha256(content.encode()).hexdigest(),
        "source_bytes": len(content.encode()),
        "n_characters": len(content),
        "tokenizer": tokenizer.to_json(),
        "vocab_size": tokenizer.vocab_size,
        "dtype": dtype.name,
        "n_tokens": start,
        "splits": splits,
        "tokens_sha256": hashlib.sha256(stored).hexdigest(),
    }
    tokens.write_bytes(stored)
    corpus.write_text(json.dumps(described, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
