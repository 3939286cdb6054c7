"""Compares the treatments of an experiment: with the baseline, with each other, and two at a time.

Inputs:
    runs, curves, processes: runs.csv, curves.csv and processes.csv.
    probes, recordings: records of probes, for the allocations that some counted.
Outputs:
    outcomes: outcomes.csv, a row a run: time in s, memory in bytes, loss in nats per token, tokens.
    effects: treatment_effects.csv, a row a treatment and outcome: ratio to the baseline, interval, verdict.
    interactions_table: interactions.csv, a row a pair of levels and outcome: interaction as a ratio, interval, test.
    ranks_table: ranks.csv, a row a treatment: both composite scores, their ranks and weights.
    pareto_table: pareto.csv, a row a treatment: on the front, beaten, or undecided.
    allocations: allocations.csv, a row a treatment: allocations and bytes of a step, and the peak of the heap in bytes.
"""

from pathlib import Path

from workflow_scripts.lib import csv_tables
from workflow_scripts.lib.allocations_table import ALLOCATIONS_COLUMNS, allocation_rows
from workflow_scripts.lib.effects import treatment_effects
from workflow_scripts.lib.experiments import outcomes as derive
from workflow_scripts.lib.interactions import interactions
from workflow_scripts.lib.pareto import pareto
from workflow_scripts.lib.ranks import ranks
from workflow_scripts.lib.record_files import recorded
from workflow_scripts.lib.records import read_record
from workflow_scripts.lib.tables import write_table


def main(
    *, runs: Path, curves: Path, processes: Path, probes: list[Path], recordings: list[Path], outcomes: Path,
    effects: Path, interactions_table: Path, ranks_table: Path, pareto_table: Path, allocations: Path, spec: dict,
) -> None:  # fmt: skip
    """Writes the tables of the experiment."""
    repeated = csv_tables.with_columns(csv_tables.read(processes), ["device", "spread"])
    table = derive(csv_tables.read(runs), csv_tables.read(curves))
    csv_tables.write(table, outcomes)
    csv_tables.write(treatment_effects(table, repeated.groupby("device").spread.max().dropna().to_dict()), effects)
    csv_tables.write(interactions(table), interactions_table)
    csv_tables.write(ranks(table), ranks_table)
    csv_tables.write(pareto(table), pareto_table)
    levels = dict(zip(table.treatment, table.levels, strict=True))
    found = ((read_record(path), path.as_posix()) for path in [*sorted(probes), *recorded(recordings, "probes/*.json")])
    counted = [row for record, path in found if record["spec"]["kind"] == "allocations"
               for row in allocation_rows(record, path, levels)]  # fmt: skip
    write_table(allocations, counted, ALLOCATIONS_COLUMNS)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
