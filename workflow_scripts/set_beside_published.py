"""Sets the tables of the study's document beside the study's own.

Inputs:
    published: all files of resources/published.
    pairings: beside/{study}.yaml there, or none.
    tables: the study's tables.
Outputs:
    beside: published.csv; a row a published number and device: `published`, `ours` with its interval `ours_low`,
        `ours_high`, both in `unit` (s, bytes), `n` rows of ours, `ratio` published over ours.
    conditions: published_conditions.csv; what is alike, differs, is not stated, or cannot be compared, and why.
    Both without rows for a study without a document.
"""

from pathlib import Path
from typing import Any

from workflow_scripts.lib import csv_tables
from workflow_scripts.lib.audit.published import load_documents
from workflow_scripts.lib.published_beside import BESIDE_COLUMNS, CONDITION_COLUMNS, read_pairings, set_beside
from workflow_scripts.lib.tables import write_table


def main(
    *, published: list[Path], pairings: list[Path], tables: list[Path], beside: Path, conditions: Path,
    spec: dict[str, Any],
) -> None:  # fmt: skip
    """Writes both tables; `spec["document"]` names the document."""
    rows: list[dict[str, Any]] = []
    unlike: list[dict[str, Any]] = []
    if pairings:
        known = {path.stem: csv_tables.read(path) for path in tables}
        devices = known["devices"]
        hardware = dict(zip(devices.device, devices.name, strict=True))
        documents = {document.study: document for document in load_documents(published[0].parent)}
        for pairing in read_pairings(pairings[0]):
            table = documents[spec["document"]].tables[pairing.published]
            found, told = set_beside(pairing, table, known, hardware)
            rows += found
            unlike += told
    write_table(beside, rows, BESIDE_COLUMNS)
    write_table(conditions, unlike, CONDITION_COLUMNS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
