"""Rules on treatments: that what was asked for took place, alone, and was not disturbed."""

import math
from collections.abc import Iterator

import pandas as pd

from workflow_scripts.lib.audit.findings import Seen, has_any, rule, words
from workflow_scripts.lib.audit.frames import LOSSES, alike, each, first_of, has, measured, value

ASKED = ("precision", "optimizer", "accumulation", "execution", "attention", "threads", "device")
# What only Assay's own records read back: no table is blamed for leaving it out.
SHAPED = ("n_layer", "n_embd", "n_head", "sequence_length", "dropout", "checkpointing")
SAME_NUMBER = 1e-6  # a device keeps a rate in float32
USUAL = ("auto", "eager")  # what happens where nothing is asked for
CHANGED_BY_TREATMENT = (
    "treatment",
    "precision",
    "optimizer",
    "schedule",
    "accumulation",
    "micro_batch_size",
    "checkpointing",
)
# Under CUDA autocast; sources: PyTorch's list of autocast operators (layer_norm and losses run in float32), and
# autograd, which gives a gradient the dtype of its parameter.
AUTOCAST = {
    "parameters": "fp32",
    "linear output": "half",
    "layer norm output": "fp32",
    "logits": "half",
    "loss": "fp32",
    "gradients": "fp32",
}
SPELLINGS = {"float32": "fp32", "full": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16"}
UNTRAINED_SPREAD = 0.05
TRAINED_SPREAD = 0.5


def precision_name(text: str) -> str:
    """One spelling for a precision: `torch.float32`, `FP32` -> `fp32`."""
    plain = str(text).lower().removeprefix("torch.").strip()
    return SPELLINGS.get(plain, plain)


@rule(
    severity="error",
    meaning="Treatments that leave the same loss to the last digit did not take place.",
    advice="Read back dtype, optimizer and accumulation; compare the loss step by step, in full floats.",
    applies=("treatment", "|".join(LOSSES)),
)
def identical_losses(table: pd.DataFrame) -> Iterator[Seen]:
    loss = first_of(table, LOSSES)
    if loss is None:
        return
    rows = measured(table, loss)
    if "changes_arithmetic" in rows.columns:  # checkpointing, for one, must leave the loss as it was
        rows = rows[rows.changes_arithmetic.astype(bool)]
    for group in alike(rows, CHANGED_BY_TREATMENT):
        for found, twins in group.groupby(loss, sort=False):
            treatments = list(dict.fromkeys(twins.treatment))
            if len(treatments) > 1:
                named = value(twins.iloc[0], "model") or value(twins.iloc[0], "name")
                text = (
                    f"{loss} {found:.{_digits(twins, loss)}f} in {len(treatments)} treatments: {', '.join(treatments)}"
                )
                yield Seen(str(named), text, {"loss": found, "n_treatments": len(treatments)})


def _digits(rows: pd.DataFrame, column: str) -> int:
    return max(4, *(len(repr(float(found)).partition(".")[2]) for found in rows[column]))


@rule(
    severity="error",
    meaning="Seeds that change nothing do not measure the spread.",
    advice="Check that the seed reaches initialisation and the order of batches.",
    applies=("seed", "|".join(LOSSES)),
)
def idle_seeds(table: pd.DataFrame) -> Iterator[Seen]:
    loss = first_of(table, LOSSES)
    if loss is None:
        return
    for group in alike(measured(table, loss, "seed"), ("seed",)):
        if group.seed.nunique() > 1 and group[loss].nunique() == 1:
            found = float(group[loss].iloc[0])
            yield Seen(
                group.iloc[0].label,
                f"{loss} {found:.6g} for all {len(group)} seeds",
                {"loss": found, "n_seeds": len(group)},
            )


@rule(
    severity="error",
    meaning="What was asked for must be read back from what ran.",
    advice="Record the dtype of a linear output, the optimizer's class and state, accumulation, threads and device.",
    applies=("treatment|observed_device|observed_precision",),
)
def read_back(table: pd.DataFrame) -> Iterator[Seen]:
    asked = [column for column in ASKED if has(table, column) and not table[column].dropna().isin(USUAL).all()]
    silent = [column for column in asked if not has(table, f"observed_{column}")]
    if silent:
        text = "cannot be checked: no " + ", ".join(words(column) for column in silent) + " read back"
        yield Seen("all rows", text, {"n_not_read_back": len(silent)}, "note")
    for column in [*asked, *(column for column in (*SHAPED, "last_rate") if has(table, column))]:
        for row in each(measured(table, column, f"observed_{column}")):
            wanted, found = row[column], row[f"observed_{column}"]
            if not _same(column, wanted, found):
                text = f"{words(column)} {_plain(wanted)} asked, {_plain(found)} observed"
                yield Seen(row.label, text, {"asked": wanted, "observed": found})


def _plain(found: object) -> str:
    return f"{found:g}" if isinstance(found, float) else str(found)


def _same(column: str, wanted: object, found: object) -> bool:
    if column == "precision":
        return precision_name(str(wanted)) == precision_name(str(found))
    if isinstance(wanted, int | float) and isinstance(found, int | float):
        return math.isclose(wanted, found, rel_tol=SAME_NUMBER)
    return str(wanted).lower() in ("auto", str(found).lower()) or str(wanted) in str(found).split("+")


@rule(
    severity="warning",
    meaning="“float32” on a GPU may mean IEEE products or TF32, several times faster: the baseline is undefined.",
    advice="Name fp32 (IEEE) or tf32, read the setting back, and say which of them a speed-up is against.",
    applies=("precision",),
)
def precision_undefined(table: pd.DataFrame) -> Iterator[Seen]:
    rows = measured(table, "precision")
    rows = rows[[precision_name(found) == "fp32" for found in rows.precision]]
    known = has(table, "matmul_precision") or has(table, "threads")
    if len(rows) and not known and not _on_cpu(rows):
        text = f"{len(rows)} rows say {rows.precision.iloc[0]}; whether their products are IEEE or TF32 is not said"
        yield Seen("all rows", text, {"n_rows": len(rows)})


def _on_cpu(rows: pd.DataFrame) -> bool:
    """Whether the device is said to be a CPU."""
    names = rows["device"].dropna().astype(str).str.lower() if "device" in rows.columns else pd.Series(dtype=str)
    return bool(len(names)) and bool(names.str.contains("cpu|core i|ryzen|xeon|epyc").all())


@rule(
    severity="warning",
    meaning="A treatment that changes several things says nothing of any one of them.",
    advice="State a treatment as its exact difference from the baseline, and change one thing at a time.",
    applies=("treatment", "changes"),
)
def several_changes(table: pd.DataFrame) -> Iterator[Seen]:
    for treatment, rows in measured(table, "changes").groupby("treatment", sort=False):
        changes = [change.strip() for change in str(rows.changes.iloc[0]).split(";") if change.strip()]
        if len(changes) > 1:
            yield Seen(
                str(treatment), f"changes {len(changes)} things: {', '.join(changes)}", {"n_changes": len(changes)}
            )


@rule(
    severity="warning",
    meaning="A loss that does not depend on the model, where others do, belongs to runs that hardly trained.",
    advice="Tune the treatment's learning rate and schedule, or compare by the time to a loss.",
    applies=("treatment", "model", "|".join(LOSSES)),
    UNTRAINED_SPREAD=UNTRAINED_SPREAD,
    TRAINED_SPREAD=TRAINED_SPREAD,
)
def hardly_trained(table: pd.DataFrame) -> Iterator[Seen]:
    loss = first_of(table, LOSSES)
    if loss is None:
        return
    by_treatment = measured(table, loss).groupby("treatment", sort=False)[loss]
    spread = (by_treatment.max() / by_treatment.min() - 1)[by_treatment.count() >= 3]
    for treatment, found in spread.items():
        if found < UNTRAINED_SPREAD and spread.max() > TRAINED_SPREAD:
            low, high = by_treatment.min()[treatment], by_treatment.max()[treatment]
            text = (
                f"{loss} {low:.2f}–{high:.2f} in all models; other treatments spread up to {100 * spread.max():.0f} %"
            )
            yield Seen(str(treatment), text, {"low": low, "high": high, "spread": found})


@rule(
    severity="error",
    meaning="Autocast keeps parameters, gradients, normalisation and loss in float32.",
    advice="Hook the modules and record dtypes instead of reasoning about them.",
    applies=("component", "dtype"),
)
def autocast_dtypes(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "component", "dtype")):
        expected, found = AUTOCAST.get(row.component), precision_name(row["dtype"])
        if expected is not None and (found in ("fp16", "bf16")) != (expected == "half"):
            yield Seen(row.component, f"given as {found}, is {expected}", {"given": found, "expected": expected})


@rule(
    severity="error",
    meaning="A time taken under a tracer is the tracer's, too.",
    advice="Trace in a job of its own; bar traced rows from tables of times.",
    applies=("tracer", "train_s|step_time_s|step_time_mean_s"),
)
def traced_timing(table: pd.DataFrame) -> Iterator[Seen]:
    rows = measured(table, "tracer")
    if len(rows):
        yield Seen("all rows", f"{len(rows)} rows were timed under {rows.tracer.iloc[0]}", {"n_rows": len(rows)})


@rule(
    severity="warning",
    meaning="Cells that share a process share its memory, its warm-up and its heat.",
    advice="One process a cell, in shuffled order; start-up lies outside the timed region.",
    applies=("isolation",),
    needs=("isolation",),
)
def shared_process(table: pd.DataFrame) -> Iterator[Seen]:
    rows = measured(table, "isolation")
    shared = rows[~rows.isolation.astype(str).str.contains("process a cell|process per cell")]
    if len(shared):
        yield Seen("all rows", f"{len(shared)} rows: {shared.isolation.iloc[0]}", {"n_rows": len(shared)})


@rule(
    severity="error",
    meaning="A missing measurement is missing, never zero.",
    advice="Leave the cell empty and give the reason.",
    applies=("step_time_s|step_time_mean_s|train_s|peak_allocated_bytes|peak_reserved_bytes|peak_bytes",),
)
def zero_for_missing(table: pd.DataFrame) -> Iterator[Seen]:
    for column in (
        "step_time_s",
        "step_time_mean_s",
        "train_s",
        "peak_allocated_bytes",
        "peak_reserved_bytes",
        "peak_bytes",
    ):
        if has_any(table, column):
            for row in each(table[table[column] == 0]):
                yield Seen(row.label, f"{column} is 0", {"column": column})
