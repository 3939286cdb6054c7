"""Rules on tables of operators and kernels: shares that sum to the whole, and calls that fit the layers."""

from collections.abc import Iterator

import pandas as pd

from workflow_scripts.lib.audit.findings import Seen, rule
from workflow_scripts.lib.audit.frames import each, has, measured
from workflow_scripts.lib.audit.wording import percent, seconds
from workflow_scripts.lib.audit.wording import rows as count_rows

WHOLE = 0.05
PRODUCT = 0.02
SPREAD = 0.05
# Linear layers of a block (query, key, value, output; gate, up, down) and its two attention products, and the head.
LINEARS_PER_LAYER, ATTENTION_PER_LAYER, HEADS = 7, 2, 1


@rule(
    severity="warning",
    meaning="Shares of time must sum to the whole, or the rest must be named.",
    advice="List operators until the shares reach 95 %, and give the remainder a row.",
    applies=("operator", "share|share_percent"),
    WHOLE=WHOLE,
)
def shares_sum(table: pd.DataFrame) -> Iterator[Seen]:
    column, whole = ("share", 1.0) if has(table, "share") else ("share_percent", 100.0)
    by = [name for name in ("device", "name", "mode") if has(table, name)]
    for key, rows in measured(table, column).groupby(by, sort=False) if by else [("all rows", measured(table, column))]:
        total = rows[column].sum() / whole
        if abs(total - 1) > WHOLE:
            subject = ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)
            yield Seen(
                subject,
                f"{count_rows(len(rows))} of {100 * total:.1f} % of the time in all",
                {"sum_percent": 100 * total},
            )


@rule(
    severity="warning",
    meaning="A kernel that serves layers is called a whole number of times for each.",
    advice="Say which products a kernel serves; a remainder is left for another kernel or another pass.",
    applies=("operator", "n_calls", "n_layer"),
)
def calls_per_layer(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "n_calls", "n_layer")):
        per_layer = row.n_calls / row.n_layer
        matrix = any(word in str(row.operator) for word in ("gemm", "matmul", "mm_"))
        if matrix and row.n_calls % row.n_layer:
            linear = LINEARS_PER_LAYER * row.n_layer + HEADS
            text = (
                f"{row.n_calls:.0f} calls for {row.n_layer:.0f} layers: {per_layer:.2f} a layer; a forward pass has "
                f"{linear:.0f} linear and {ATTENTION_PER_LAYER * row.n_layer:.0f} attention products"
            )
            numbers = {"calls_per_layer": per_layer, "linear": linear, "attention": ATTENTION_PER_LAYER * row.n_layer}
            yield Seen(str(row.operator), text, numbers)


@rule(
    severity="error",
    meaning="Calls times the time of one must be the total.",
    advice="Compute statistics once, from the trace.",
    applies=("n_calls", "call_time_s", "total_time_s"),
    PRODUCT=PRODUCT,
)
def calls_times_mean(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "n_calls", "call_time_s", "total_time_s")):
        ratio = row.n_calls * row.call_time_s / row.total_time_s
        if abs(ratio - 1) > PRODUCT:
            text = f"{row.n_calls:.0f} calls of {seconds(row.call_time_s)} are {percent(ratio)} off the total"
            yield Seen(str(row.operator), text, {"ratio": ratio})


@rule(
    severity="warning",
    meaning="A pass calls each product and each attention as often as its layers ask for.",
    advice="See the trace for what was called besides, or instead: another kernel, a recomputation, a fused product.",
    applies=("what", "expected", "found"),
)
def calls_follow_layers(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "expected", "found")):
        if round(row.found) != round(row.expected):
            text = f"{row.what} in {row.phase} of {row.mode}: {row.found:g} calls where {row.expected:g} are expected"
            yield Seen(row.label, text, {"found": row.found, "expected": row.expected})


@rule(
    severity="warning",
    meaning="Repeats in fresh processes that spread by more than 5 % set the noise floor of every comparison.",
    advice="Rank no gap below this spread; look for company on the machine.",
    applies=("n_processes", "spread"),
    SPREAD=SPREAD,
)
def process_spread(table: pd.DataFrame) -> Iterator[Seen]:
    for row in each(measured(table, "spread")):
        if row.spread > SPREAD:
            text = f"medians of {row.n_processes:.0f} processes spread by {100 * row.spread:.1f} %"
            yield Seen(row.label, text, {"spread": row.spread, "n_processes": row.n_processes})
