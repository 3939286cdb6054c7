"""The corpus: one text as token ids, split for training and validation.

Input: the text that the config names.
Output: results/{study}/corpus/tokens.bin, corpus.json (vocabulary, splits, digests).
Steps: prepare_corpus.
"""

CORPUS = [
    f"results/{STUDY.name}/corpus/tokens.bin",
    f"results/{STUDY.name}/corpus/corpus.json",
]


rule prepare_corpus:
    """Reads the text, makes tokens of it and splits them."""
    output:
        tokens="results/{study}/corpus/tokens.bin",
        corpus="results/{study}/corpus/corpus.json",
    log:
        "logs/{study}/corpus/corpus.log",
    params:
        spec=spec(
            "prepare_corpus",
            corpus=STUDY.config["corpus"],
            source_digest=SOURCE.digest,
        ),
    script:
        "../workflow_scripts/prepare_corpus.py"
