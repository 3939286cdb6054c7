"""Finds the steps of each training that took much longer than their neighbours, and what may have made them.

Inputs:
    records, metrics: run.json and metrics.csv of each run, in the same order.
    recordings, selection: recordings of other devices; those of their runs whose role has another model are left out.
Output:
    spikes: spikes.csv; a row an event: its first `step`, `n_steps` that it lasted, its longest `step_time_s`, that over
        its neighbours' (`relative`), `extra_s` that it cost, `cause` with its `evidence`, and whether the machine was
        `looked` at during the run.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from workflow_scripts.lib.record_files import of_same_models, open_text, recorded
from workflow_scripts.lib.records import read_record
from workflow_scripts.lib.spikes import COLUMNS, spike_rows
from workflow_scripts.lib.tables import write_table


def main(
    *, records: list[Path], metrics: list[Path], recordings: list[Path], selection: list[Path], spikes: Path, spec: Any
) -> None:
    others = of_same_models(recorded(recordings, "runs/*/run.json"), selection, records)
    histories = [*metrics, *(path.with_name("metrics.csv") for path in others)]
    rows = []
    for path, history in zip([*records, *others], histories, strict=True):
        rows += spike_rows(read_record(path), pd.read_csv(open_text(history)), path.as_posix())
    write_table(spikes, rows, COLUMNS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
