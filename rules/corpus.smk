"""The study as resolved, and its corpus: one text as token ids, split for training and validation.

Input: the config; the text that it names.
Output: results/{study}/study.yaml; results/{study}/corpus/tokens.bin, corpus.json (vocabulary, splits, digests).
Steps: resolve_study, prepare_corpus.
"""

STUDY_FILE = f"results/{STUDY.name}/study.yaml"
CORPUS = [
    f"results/{STUDY.name}/corpus/tokens.bin",
    f"results/{STUDY.name}/corpus/corpus.json",
]


rule resolve_study:
    """Writes the whole config as resolved."""
    output:
        study="results/{study}/study.yaml",
    log:
        "logs/{study}/study.log",
    params:
        spec=spec(
            "resolve_study",
            config=STUDY.config,
            devices=[to_json(device) for device in STUDY.devices.values()],
        ),
    script:
        "../workflow_scripts/resolve_study.py"


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
