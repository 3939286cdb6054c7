"""Gathers the runs of all devices into one table, and their curves into another.

Inputs:
    records, metrics: run.json and metrics.csv of each run, in the same order.
    corpus: corpus.json, for bits per byte.
    recordings, selection: recordings of other devices; those of their runs whose role has another model are left out.
Outputs:
    runs: runs.csv, a row a run; times in seconds, losses in nats per token. See `tables.run_row`.
    curves: curves.csv, the history of each run, thinned for drawing.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from workflow_scripts.lib.record_files import of_same_models, open_text, recorded
from workflow_scripts.lib.tables import CURVE_COLUMNS, RUN_COLUMNS, curve, run_row, write_table


def main(
    *, records: list[Path], metrics: list[Path], recordings: list[Path], selection: list[Path], corpus: Path,
    runs: Path, curves: Path, spec: Any,
) -> None:  # fmt: skip
    facts = json.loads(corpus.read_text(encoding="utf-8"))
    others = of_same_models(recorded(recordings, "runs/*/run.json"), selection, records)
    records = [*records, *others]
    metrics = [*metrics, *(path.with_name("metrics.csv") for path in others)]
    histories = [pd.read_csv(open_text(path)) for path in metrics]
    rows = [run_row(path, history, facts) for path, history in zip(records, histories, strict=True)]
    write_table(runs, rows, RUN_COLUMNS)
    drawn = [curve(path, history) for path, history in zip(records, histories, strict=True) if len(history)]
    table = pd.concat(drawn, ignore_index=True) if drawn else pd.DataFrame(columns=CURVE_COLUMNS)
    table.to_csv(curves, index=False)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
