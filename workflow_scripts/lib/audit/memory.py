"""Rules on memory: which quantity it is, that it grows with size, and that no more is saved than was there."""

import itertools
from collections.abc import Iterator

import pandas as pd

from workflow_scripts.lib.audit.findings import Seen, rule, words
from workflow_scripts.lib.audit.frames import (
    MEMORIES,
    SIZES,
    Row,
    alike,
    all_of,
    each,
    first_of,
    has,
    measured,
    neighbours,
    value,
)
from workflow_scripts.lib.audit.wording import count, percent, scaled, times

FALL, PROCESS_FALL = 0.01, 0.10
# CUDA's allocator counts up to 1 MiB beside a tensor as the tensor's; one with a segment of its own has 10 and more.
ROUNDED = 0.10
FLAT = 0.01
FLAT_PARAMS = 1.5
EQUAL_GAP = 0.005
LONE_GAP = 0.05
OVER_LIMIT = 0.95
GROWS_WITH_PARAMETERS = ("n_allocations", "peak_allocated_bytes", "peak_reserved_bytes", "peak_bytes")
FP32_BYTES = 4
HELD = 0.99  # printed numbers are rounded
# Optimizer state in copies of the parameters: first and second moment for Adam (Kingma & Ba 2015), none for plain SGD,
# one buffer for SGD with momentum.
STATE_COPIES = {"adam": 2, "adamw": 2, "sgd": 0, "sgd momentum": 1}


@rule(
    severity="error",
    meaning="A number of allocations is not an amount of memory.",
    advice="Report peak bytes, under the name of what was measured; count allocations in a column of their own.",
    applies=("n_allocations",),
)
def memory_is_count(table: pd.DataFrame) -> Iterator[Seen]:
    if not all_of(table, MEMORIES):
        low, high = table.n_allocations.min(), table.n_allocations.max()
        yield Seen(
            "all rows",
            f"memory is given as {low:,.0f} to {high:,.0f} allocations, with no bytes",
            {"low": low, "high": high},
        )


@rule(
    severity="warning",
    meaning="Reserved, allocated, process and device memory are four quantities, and only allocated is the model's.",
    advice="Compare peak allocated bytes; print reserved beside it, both under their names.",
    applies=("peak_reserved_bytes|peak_bytes|before_backward_bytes",),
)
def memory_quantity(table: pd.DataFrame) -> Iterator[Seen]:
    if has(table, "peak_allocated_bytes") or has(table, "memory_quantity"):
        return
    if has(table, "peak_reserved_bytes"):
        yield Seen("all rows", "only peak reserved is given: it counts what the allocator keeps, not what is needed")
    else:
        yield Seen("all rows", "cannot be checked: allocated, reserved, or device memory is not said", {}, "note")


@rule(
    severity="error",
    meaning="Allocated memory cannot exceed reserved, nor reserved the device's.",
    advice="The columns are swapped or their units differ; bar them.",
    applies=("peak_allocated_bytes", "peak_reserved_bytes"),
)
def memory_order(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "peak_allocated_bytes", "peak_reserved_bytes")):
        if row.peak_allocated_bytes > row.peak_reserved_bytes:
            a, r = row.peak_allocated_bytes, row.peak_reserved_bytes
            yield Seen(row.label, f"allocated {scaled(a, 'B')} exceeds reserved {scaled(r, 'B')}", {"ratio": a / r})


@rule(
    severity="warning",
    meaning="A peak within 5 % of the device's memory may be served from the host instead of failing.",
    advice="Lower the batch by one: if the rate jumps, the cell was oversubscribed.",
    applies=("peak_reserved_bytes", "device_memory_bytes"),
    OVER_LIMIT=OVER_LIMIT,
)
def near_limit(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "peak_reserved_bytes", "device_memory_bytes")):
        share = row.peak_reserved_bytes / row.device_memory_bytes
        if share > OVER_LIMIT:
            yield Seen(row.label, f"reserves {100 * share:.0f} % of the device's memory", {"share": share})


@rule(
    severity="warning",
    meaning="What fits is decided by a memory limit that the device was asked for, not by a typical one.",
    advice="Read the limit from the device, and record what others held of it at the start.",
    applies=("device_memory_bytes",),
)
def limit_assumed(table: pd.DataFrame) -> Iterator[Seen]:
    rows = measured(table, "device_memory_bytes")
    if has(table, "device_memory_bytes_approximate") and not has(table, "memory_limit_method"):
        about = rows[rows.device_memory_bytes_approximate == True]  # noqa: E712 - the column may hold missing values
        if len(about):
            limit = about.device_memory_bytes.iloc[0]
            yield Seen(
                "all rows",
                f"the limit is “about {scaled(limit, 'B')}”, not read from the device",
                {"limit_bytes": limit},
            )


@rule(
    severity="error",
    meaning="Peak memory that falls as size grows was measured on top of what another cell had left.",
    advice="One process a cell; the same cell first or last must give the same peak.",
    applies=("|".join(MEMORIES),),
    FALL=FALL,
    PROCESS_FALL=PROCESS_FALL,
)
def memory_falls(table: pd.DataFrame) -> Iterator[Seen]:
    for column in all_of(table, MEMORIES):
        for axis in SIZES:
            for smaller, larger in neighbours(table, axis, column):
                if column == "peak_process_bytes" and value(smaller, "start") != value(larger, "start"):
                    continue  # a forked process lacks what only importing touches
                ratio = larger[column] / smaller[column]
                if ratio < 1 - (PROCESS_FALL if column == "peak_process_bytes" else FALL):
                    text = (
                        f"{words(column)} {scaled(smaller[column], 'B')}, more than the "
                        f"{scaled(larger[column], 'B')} of {larger.label}, whose {words(axis)} is "
                        f"{larger[axis]:,.0f} instead of {smaller[axis]:,.0f}"
                    )
                    numbers = {"ratio": ratio, "smaller_bytes": smaller[column], "larger_bytes": larger[column]}
                    yield Seen(smaller.label, text, numbers)


@rule(
    severity="error",
    meaning="What is called memory must rise with the parameters.",
    advice="Check the unit: counts of allocations follow the layers, bytes follow the width as well.",
    applies=("|".join(GROWS_WITH_PARAMETERS), "n_params"),
    FLAT=FLAT,
    FLAT_PARAMS=FLAT_PARAMS,
)
def memory_flat(table: pd.DataFrame) -> Iterator[Seen]:
    for column in all_of(table, GROWS_WITH_PARAMETERS):
        for group in alike(measured(table, column, "n_params"), SIZES["n_params"]):
            ordered = group.sort_values("n_params")
            smaller, larger = ordered.iloc[0], ordered.iloc[-1]
            growth, ratio = larger.n_params / smaller.n_params, larger[column] / smaller[column]
            if growth >= FLAT_PARAMS and ratio < 1 + FLAT:
                text = f"{words(column)} changes by {percent(ratio)} from {smaller.label}, parameters {times(growth)}"
                yield Seen(larger.label, text, {"change_percent": 100 * (ratio - 1), "params_ratio": growth})


@rule(
    severity="error",
    meaning="An optimizer cannot save more memory than the state of the one that it replaces.",
    advice="Compare allocated memory, repeat the run, and look for what else differs.",
    applies=("optimizer", "treatment", "peak_allocated_bytes|peak_reserved_bytes"),
    needs=("n_params",),
    PROCESS_FALL=PROCESS_FALL,
    ROUNDED=ROUNDED,
)
def saving_bounded(table: pd.DataFrame) -> Iterator[Seen]:
    column = first_of(table, MEMORIES)
    rows = measured(table, column, "optimizer", "n_params") if column else table.iloc[:0]
    for group in alike(rows, ("treatment", "optimizer", "schedule")):
        copies = group.apply(state_copies, axis=1)
        if copies.isna().any() or copies.nunique() < 2:
            continue
        most, least = group.loc[copies.idxmax()], group.loc[copies.idxmin()]
        saved = most[column] - least[column]
        bound = (copies.max() - copies.min()) * FP32_BYTES * most.n_params
        state = copies.max() * FP32_BYTES * most.n_params
        # A process keeps of what it freed as much as its allocator likes; a device's hands out whole blocks.
        slack = PROCESS_FALL * most[column] if column == "peak_process_bytes" else ROUNDED * bound
        if saved > bound + slack:
            text = (
                f"saves {scaled(saved, 'B')} of {words(column)}, but leaves out only {scaled(bound, 'B')} of the "
                f"{scaled(state, 'B')} of state ({count(most.n_params)} parameters)"
            )
            numbers = {"saved_bytes": saved, "bound_bytes": bound, "state_bytes": state, "ratio": saved / bound}
            yield Seen(least.label, text, numbers)


@rule(
    severity="error",
    meaning="Fewer sequences at a time, a lower precision or checkpointing save activations, and nothing else.",
    advice="Look for what else differs: parameters, gradients and state are there in float32 when an update is made.",
    applies=("optimizer", "treatment", "peak_allocated_bytes|peak_reserved_bytes"),
    needs=("n_params",),
    HELD=HELD,
)
def less_than_is_held(table: pd.DataFrame) -> Iterator[Seen]:
    column = first_of(table, MEMORIES)
    for row in each(measured(table, column, "optimizer", "n_params")) if column else ():
        copies = state_copies(row)
        if copies is None or column in ("peak_process_bytes", "before_backward_bytes"):
            continue
        held = (2 + copies) * FP32_BYTES * row.n_params
        if row[column] < HELD * held:
            text = (
                f"{words(column)} {scaled(row[column], 'B')}, but parameters, gradients and state take "
                f"{scaled(held, 'B')} ({count(row.n_params)} parameters): more was saved than activations"
            )
            yield Seen(row.label, text, {"peak_bytes": row[column], "held_bytes": held})


def state_copies(row: Row) -> float | None:
    """Copies of the parameters that the row's optimizer keeps as state; None where it is not known."""
    name = str(value(row, "optimizer") or "").lower().split(",")[0].strip()
    if name == "sgd" and value(row, "momentum"):
        name = "sgd momentum"
    return STATE_COPIES.get(name)


@rule(
    severity="warning",
    meaning="Two treatments that agree in every model but one differ there by accident.",
    advice="Repeat that cell before reading anything into its gap.",
    applies=("treatment", "model", "|".join(MEMORIES)),
    EQUAL_GAP=EQUAL_GAP,
    LONE_GAP=LONE_GAP,
)
def lone_gap(table: pd.DataFrame) -> Iterator[Seen]:
    for column in all_of(table, MEMORIES):
        wide = measured(table, column).pivot_table(index="model", columns="treatment", values=column, sort=False)
        for one, other in itertools.combinations(wide.columns, 2):
            gaps = (wide[one] / wide[other] - 1).abs().dropna()
            lone, n_equal = gaps[gaps > LONE_GAP], int((gaps <= EQUAL_GAP).sum())
            if len(gaps) >= 3 and len(lone) == 1 and n_equal == len(gaps) - 1:
                model = lone.index[0]
                low, high = sorted((wide.loc[model, one], wide.loc[model, other]))
                gap = f"{scaled(low, 'B')} against {scaled(high, 'B')} ({percent(high / low)})"
                text = f"{gap}, equal in the other {n_equal} models"
                yield Seen(f"{model}: {one} and {other}", text, {"ratio": high / low, "n_equal": n_equal})


@rule(
    severity="warning",
    meaning="Equal micro-batches hold equal activations: one cannot need less memory here and more there.",
    advice="Compare allocated memory in fresh processes; the order must be the same in every model.",
    applies=("treatment", "model", "micro_batch_size", "|".join(MEMORIES)),
)
def micro_batch_order(table: pd.DataFrame) -> Iterator[Seen]:
    for column in all_of(table, MEMORIES):
        rows = measured(table, column, "micro_batch_size")
        for group in alike(rows, (*SIZES["n_params"], "sequence_length", "treatment", "batch_size", "accumulation")):
            wide = group.pivot_table(index="model", columns="treatment", values=column, sort=False)
            for one, other in itertools.combinations(wide.columns, 2):
                ratios = (wide[other] / wide[one]).dropna()
                if ratios.min() < 1 < ratios.max():
                    size = group.micro_batch_size.iloc[0]
                    text = f"micro-batch {size:.0f} in both: " + ", ".join(f"{m} {r:.2f}" for m, r in ratios.items())
                    yield Seen(f"{other} over {one}", text, {"low": ratios.min(), "high": ratios.max()} | dict(ratios))
