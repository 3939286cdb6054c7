"""Gathers the probes of all devices into a table for each kind.

Inputs:
    probes: the records.
    recordings: recordings of other devices.
    ceilings: ceilings.csv, for what a device could do at best.
Outputs, times in s, memory in bytes, intervals at 95 %; a kind that nobody asked for has no rows:
    attention: attention.csv, a row for each combination; see `attention_table`.
    accumulation: accumulation.csv, a row for each way and number of terms.
    autocast, autocast_steps: a row for each precision, and for each step of it; losses in nats per token.
    clocks: clocks.csv, a row for each mode and context.
    operator_probes, operator_counts: a row for each operator and mode; counts beside those that layers ask for.
"""

from pathlib import Path
from typing import Any

from workflow_scripts.lib import csv_tables, probe_tables
from workflow_scripts.lib.attention_table import ATTENTION_COLUMNS, attention_rows
from workflow_scripts.lib.operator_counts import COUNT_COLUMNS
from workflow_scripts.lib.record_files import recorded
from workflow_scripts.lib.records import read_record
from workflow_scripts.lib.tables import write_table


def main(
    *, probes: list[Path], recordings: list[Path], ceilings: Path, attention: Path, accumulation: Path, autocast: Path,
    autocast_steps: Path, clocks: Path, operator_probes: Path, operator_counts: Path, spec: dict[str, Any],
) -> None:  # fmt: skip
    best = csv_tables.read(ceilings)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for path in [*sorted(probes), *recorded(recordings, "probes/*.json")]:
        record, shown = read_record(path), path.as_posix()
        match record["spec"]["kind"]:
            case "attention":
                rows["attention"] += attention_rows(record, best, shown)
            case "accumulation":
                rows["accumulation"] += probe_tables.accumulation_rows(record, shown)
            case "autocast":
                found, steps = probe_tables.autocast_rows(record, shown)
                rows["autocast"] += found
                rows["autocast_steps"] += steps
            case "clocks":
                rows["clocks"] += probe_tables.clock_rows(record, shown)
            case "operators":
                found, counts = probe_tables.operator_rows(record, shown)
                rows["operator_probes"] += found
                rows["operator_counts"] += counts
    files = (attention, accumulation, autocast, autocast_steps, clocks, operator_probes, operator_counts)
    for (name, columns), file in zip(TABLES.items(), files, strict=True):
        write_table(file, rows[name], columns)


TABLES = {
    "attention": ATTENTION_COLUMNS,
    "accumulation": probe_tables.ACCUMULATION_COLUMNS,
    "autocast": probe_tables.AUTOCAST_COLUMNS,
    "autocast_steps": probe_tables.AUTOCAST_STEP_COLUMNS,
    "clocks": probe_tables.CLOCK_COLUMNS,
    "operator_probes": probe_tables.OPERATOR_COLUMNS,
    "operator_counts": COUNT_COLUMNS,
}


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
