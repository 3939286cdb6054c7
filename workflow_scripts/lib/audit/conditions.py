"""Rules on what a table must say of its conditions, on rows without a result, and on tables that should agree."""

import itertools
from collections.abc import Iterator

import pandas as pd

from workflow_scripts.lib.audit.findings import Seen, has_any, rule, words
from workflow_scripts.lib.audit.frames import IDENTITY, LABELS, Row, each, first_of, has, measured, value
from workflow_scripts.lib.audit.wording import percent, quantity, seconds

STEP_TIMES = ("step_time_s", "step_time_mean_s")
OF_TIMING = ("device", "precision", "batch_size", "sequence_length", "n_samples", "warmup_steps")
OF_TRAINING = ("device", "precision", "optimizer", "learning_rate", "batch_size", "sequence_length", "n_steps")
OF_LOSS = ("loss_split|final_val_loss", "n_tokens", "seed|n_seeds")
TABLES_AGREE = 0.10
MEASURES = ("step_time_s", "step_time_mean_s", "train_s", "loss", "n_params", "peak_bytes")


@rule(
    severity="warning",
    meaning="A number without its conditions cannot be reproduced or compared.",
    advice="Give the full configuration, device and settings on every row.",
    applies=("step_time_s|step_time_mean_s|train_s|loss|peak_bytes|speedup",),
)
def missing_conditions(table: pd.DataFrame) -> Iterator[Seen]:
    wanted: list[str] = []
    if {"step_time_s", "step_time_mean_s", "speedup"} & set(table.columns):
        wanted += OF_TIMING
    if "train_s" in table.columns:
        wanted += OF_TRAINING
    if "loss" in table.columns:
        wanted += OF_LOSS
    if "peak_bytes" in table.columns:
        wanted += ["device", "memory_quantity"]
    if _names_cpu(table):
        wanted.append("threads")
    stated = _assumed(table)
    missing = [name for name in dict.fromkeys(wanted) if not has_any(table, name) or name in stated]
    if missing:
        text = "not stated: " + ", ".join(words(name) for name in missing)
        yield Seen("all rows", text, {"n_missing": len(missing), "missing": missing})


def _names_cpu(table: pd.DataFrame) -> bool:
    return has(table, "device") and table.device.astype(str).str.lower().str.contains("cpu|core i").any()


def _assumed(table: pd.DataFrame) -> set[str]:
    """Columns whose values the document does not state."""
    return set(",".join(table["assumed"].dropna().unique()).split(",")) if "assumed" in table.columns else set()


@rule(
    severity="error",
    meaning="A table whose numbers were lost on the way to the page says nothing.",
    advice="Keep numbers in text: a page must survive being copied as text.",
    applies=("|".join(MEASURES),),
)
def numbers_lost(table: pd.DataFrame) -> Iterator[Seen]:
    if "record" in table.columns:  # where there is a record, an empty column is a quantity that its device lacks
        return
    lost = [column for column in MEASURES if column in table.columns and not has(table, column)]
    if lost:
        text = "the text speaks of " + ", ".join(words(column) for column in lost) + " and gives no number"
        yield Seen("all rows", text, {"n_lost": len(lost)})


@rule(
    severity="note",
    meaning="A configuration that gave no result is a result, with its reason.",
    advice="Read the reason; a cell that failed for lack of memory bounds what fits.",
    applies=("status",),
)
def no_result(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "status")):
        if row.status != "ok":
            reason = value(row, "reason")
            yield Seen(row.label, f"{row.status}" + (f": {reason}" if reason else ""), {"status": row.status})


@rule(
    severity="warning",
    meaning="A GPU that others use meanwhile shares its time, its memory and its bandwidth with them.",
    advice="Measure again when the GPU is free: end the other processes, or name another GPU in devices.",
    applies=("gpu_others",),
)
def shared_gpu(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "gpu_others")):
        if row.gpu_others > 0:
            held = value(row, "gpu_others_bytes")
            text = f"{row.gpu_others:.0f} other processes were on the GPU"
            text += f" and held {quantity(held, 'held_bytes')} of it" if held else ""
            yield Seen(row.label, text, {"n_others": int(row.gpu_others), "held_bytes": held})


@rule(
    severity="error",
    meaning="Losses on different windows of the text are losses of different things.",
    advice="Fix the windows by their positions, whatever the batch and the device, and compare their hashes.",
    applies=("eval_windows",),
)
def unequal_evaluation(table: pd.DataFrame) -> Iterator[Seen]:
    for context, rows in measured(table, "eval_windows", "sequence_length").groupby("sequence_length", sort=False):
        usual = rows.eval_windows.mode().iloc[0]
        n = int((rows.eval_windows == usual).sum())
        for row in each(rows[rows.eval_windows != usual]):
            text = f"evaluated on other windows of {context:.0f} tokens than {n} of {len(rows)} runs"
            yield Seen(row.label, text, {"windows": row.eval_windows, "usual": usual, "n_usual": n})


@rule(
    severity="warning",
    meaning="One run on two devices must start from the same weights and see the same batches.",
    advice="Draw weights and the order of batches on the CPU from the seed; another torch may draw others.",
    applies=("run", "start_weights|start_batches"),
)
def other_start(table: pd.DataFrame) -> Iterator[Seen]:
    for column, what in (("start_weights", "weights"), ("start_batches", "batches")):
        for run, rows in measured(table, "run", column).groupby("run", sort=False):
            if rows[column].nunique() > 1:
                devices = ", ".join(map(str, rows.device))
                yield Seen(", ".join(map(str, rows.label)), f"{run} has other {what} on each of {devices}",
                           {"n_starts": int(rows[column].nunique())})  # fmt: skip


@rule(
    severity="error",
    meaning="One configuration on one device has one row.",
    advice="Tell repeats apart by process and seed; do not append.",
    applies=("cell|run", "device"),
)
def repeated_key(table: pd.DataFrame) -> Iterator[Seen]:
    key = "cell" if has(table, "cell") else "run"
    by = [column for column in ("device", key, "process", "seed") if has(table, column)]
    counts = table.groupby(by, dropna=False).size()
    for found, n in counts[counts > 1].items():
        yield Seen(" ".join(map(str, found if isinstance(found, tuple) else (found,))), f"{n} rows", {"n_rows": int(n)})


@rule(
    scope="document",
    severity="warning",
    meaning="Two tables that give one configuration must agree within 10 %, or say what differs.",
    advice="Put batch, context and precision on each row; what a table leaves out may be what differs.",
    TABLES_AGREE=TABLES_AGREE,
)
def tables_disagree(tables: dict[str, pd.DataFrame]) -> Iterator[Seen]:
    timed = {
        name: table for name, table in tables.items() if first_of(table, STEP_TIMES) and has(table, "model", "mode")
    }
    for (name, one), (other_name, other) in itertools.combinations(timed.items(), 2):
        a, b = first_of(one, STEP_TIMES), first_of(other, STEP_TIMES)
        for row in each(_warmest(measured(one, a))):
            same = [candidate for candidate in each(measured(other, b)) if _compatible(row, candidate)]
            if same:
                nearest = min(same, key=lambda candidate: abs(candidate[b] / row[a] - 1))
                ratio = nearest[b] / row[a]
                if abs(ratio - 1) > TABLES_AGREE:
                    there = f"{seconds(nearest[b])} ({nearest.label}) in {other_name}"
                    text = f"{seconds(row[a])} in {name}, {there}: {percent(ratio)}"
                    yield Seen(row.label, text, {"ratio": ratio, "one_s": row[a], "other_s": nearest[b]})


def _warmest(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the most warm-up, of which a steady time can be expected."""
    return rows[rows.warmup_steps == rows.warmup_steps.max()] if has(rows, "warmup_steps") else rows


def _compatible(one: Row, other: Row) -> bool:
    """Whether no stated condition tells the rows apart, and model and mode are the same."""
    for column in (*LABELS, *IDENTITY):
        a, b = value(one, column), value(other, column)
        if column in ("model", "mode") and a != b:
            return False
        if column != "warmup_steps" and a is not None and b is not None and a != b:
            return False
    return True
