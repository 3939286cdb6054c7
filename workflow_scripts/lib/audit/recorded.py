"""Rules on recorded devices: what measured them differs from what measures here, and what their models cost here."""

from collections.abc import Iterator

import pandas as pd

from workflow_scripts.lib.audit.findings import Seen, rule
from workflow_scripts.lib.audit.frames import each, measured
from workflow_scripts.lib.quantities import listing

CODE = "the code that measured"  # ... which kinds of record; its digests stand in the finding's numbers
NAMED = 4  # of the runs that a recording lacks
ESSENTIAL = "tokens of the corpus"  # other tokens make other losses; other code or torch may only measure differently


@rule(
    severity="note",
    meaning="A recorded device was measured by other code, another torch or another form of record than this one.",
    advice="Before trusting a small gap between the devices, record it again with this version of Assay and torch.",
    applies=("recorded_by",),
)
def recorded_differently(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "recorded_by")):
        if row.recorded_by != row.measured_by:
            severity = "error" if row.part == ESSENTIAL else None
            differ = f"{row.part}: {row.recorded_by} in the recording, {row.measured_by} here"
            text = f"{row.part} has changed since the recording" if row.part.startswith(CODE) else differ
            numbers = {"part": row.part, "recorded": row.recorded_by, "here": row.measured_by}
            yield Seen(row.label, text, numbers, severity)


@rule(
    severity="note",
    meaning="A recording has not all runs of this study, so that what is said of its device rests on a part of them.",
    advice="Say less of what is missing than of what is there; record the rest, or name fewer treatments and seeds.",
    applies=("n_lacking",),
    needs=("n_planned",),
)
def recorded_in_part(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "n_lacking", "n_planned")):
        if row.n_lacking:
            named = ", ".join(row.lacking[:NAMED]) + (", …" if row.n_lacking > NAMED else "")
            text = f"its recording lacks {row.n_lacking:,} of {row.n_planned:,} runs: {named}"
            yield Seen(row.label, text, {"n_lacking": row.n_lacking, "n_planned": row.n_planned})


@rule(
    severity="warning",
    meaning="Models adopted from a recording cost more on a local device than the study's budgets allow.",
    advice="Raise the budget, or set selection.adopt: false to select models that fit here too.",
    applies=("over_budget",),
)
def adopted_over_budget(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "over_budget")):
        yield Seen(row.label, f"needs {row.over_budget}", {"ratio": row.over_ratio})


@rule(
    severity="note",
    meaning="Devices of equal hardware are compared as devices of their own: their gap is what two copies differ by.",
    advice="Read a gap between them as the spread of equal hardware, and no gap smaller than it as one of hardware.",
    applies=("hardware",),
)
def equal_hardware(table: pd.DataFrame) -> Iterator[Seen]:
    for hardware, rows in measured(table, "hardware").groupby("hardware", sort=False):
        if len(rows) > 1:
            names = [str(label) for label in rows.label]
            yield Seen(", ".join(names), f"{listing(names)} are the same hardware: {hardware}", {"n": len(rows)})
