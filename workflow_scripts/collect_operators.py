"""Gathers the operators of all profiles into one table.

Inputs:
    operators: operators.csv of each profile, in folders {device}/profiles/{name}/.
    recordings, selection: recordings of other devices; profiles of another model in a role are left out.
Output:
    operators (table): operators.csv with the columns device and name before those of the profile.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from workflow_scripts.lib.record_files import of_same_models, open_text, recorded

COLUMNS = (
    "device name operator category phase calls_per_step self_time_s share flops moved_bytes self_memory_bytes"
).split()


def main(
    *, operators: list[Path], recordings: list[Path], selection: list[Path], operators_table: Path, spec: dict[str, Any]
) -> None:
    others = of_same_models(recorded(recordings, "profiles/*/profile.json"), selection, operators)
    every = [*operators, *(path.with_name("operators.csv") for path in others)]
    tables = [pd.read_csv(open_text(path)).assign(device=path.parents[2].name, name=path.parent.name) for path in every]
    tables = [table for table in tables if len(table)]
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=COLUMNS)
    table.reindex(columns=COLUMNS).to_csv(operators_table, index=False)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
