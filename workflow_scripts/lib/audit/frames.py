"""The form of table that rules read, and how rows are set side by side.

One row is one measured configuration. Columns have the names of Assay's own tables (SI units; missing is missing);
a printed table has fewer of them, and some that only it needs. Columns of `IDENTITY` say what was measured, the rest
what came out.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import pandas as pd

LABELS = ("model", "name", "role")
SHAPE = ("architecture", "n_layer", "n_head", "n_embd", "n_inner", "vocab_size")
IDENTITY = (
    *("device", *LABELS, *SHAPE, "sequence_length", "batch_size", "micro_batch_size", "accumulation"),
    *("treatment", "precision", "execution", "attention", "optimizer", "schedule", "checkpointing"),
    *("mode", "warmup_steps", "seed", "process", "component", "operator", "option"),
)
NAMING = (
    *("device", *LABELS, "treatment", "component", "operator", "n_layer", "n_embd", "sequence_length", "batch_size"),
    *("mode", "precision", "execution", "attention", "warmup_steps", "accumulator", "added_as", "seed", "process"),
)
SPOKEN = {"sequence_length": "context", "batch_size": "batch", "n_embd": "width", "n_layer": "layers"}
SPOKEN |= {"warmup_steps": "warm-up"}
TIMES = ("step_time_s", "step_time_mean_s", "train_s")
LOSSES = ("final_val_loss", "best_val_loss", "final_train_loss", "loss")
MEMORIES = ("peak_allocated_bytes", "peak_reserved_bytes", "peak_process_bytes", "before_backward_bytes", "peak_bytes")
# Along these axes work grows; the columns beside each change with it and so do not set two rows apart.
SIZES = {
    "n_params": (*LABELS, *SHAPE),
    "sequence_length": ("sequence_length",),
    "batch_size": ("batch_size", "micro_batch_size"),
}


class Row(dict[str, Any]):
    """A row's values by column, also as attributes; `index` is its index in the table."""

    def __init__(self, index: Any, values: dict[Any, Any]) -> None:
        super().__init__(values)
        self.index = index

    def __getattr__(self, column: str) -> Any:
        try:
            return self[column]
        except KeyError:
            raise AttributeError(column) from None


def each(table: pd.DataFrame) -> Iterator[Row]:
    """The rows of a table, some ten times faster than `iterrows`."""
    for index, values in zip(table.index, table.to_dict("records"), strict=True):
        yield Row(index, values)


def has(table: pd.DataFrame, *columns: str) -> bool:
    """Whether each column is there with a value in some row."""
    return all(column in table.columns and bool(table[column].notna().any()) for column in columns)


def measured(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The rows in which each of `columns` has a value; none where a column is absent."""
    if not set(columns) <= set(table.columns):
        return table.iloc[:0]
    return table.dropna(subset=list(columns))


def first_of(table: pd.DataFrame, columns: tuple[str, ...]) -> str | None:
    """The first of `columns` that has values."""
    return next((column for column in columns if has(table, column)), None)


def all_of(table: pd.DataFrame, columns: tuple[str, ...]) -> list[str]:
    """Those of `columns` that have values."""
    return [column for column in columns if has(table, column)]


def value(row: "Row | pd.Series", column: str) -> Any:
    """The row's value, or None where it is missing."""
    found = row.get(column)
    return None if found is None or pd.isna(found) else found


def working(table: pd.DataFrame) -> pd.DataFrame:
    """The rows whose time depends on batch and context: all but those of the optimizer alone."""
    return table[table["mode"] != "optimizer"] if "mode" in table.columns else table


def alike(table: pd.DataFrame, but: tuple[str, ...]) -> Iterator[pd.DataFrame]:
    """Groups of at least two rows that are the same configuration in everything but the columns `but`."""
    keys = _keys(table, but)
    groups = [table] if not keys else [group for _, group in table.groupby(keys, dropna=False, sort=False)]
    yield from (group for group in groups if len(group) > 1)


def alike_rows(table: pd.DataFrame, but: tuple[str, ...]) -> Iterator[list[Row]]:
    """The same groups as lists of rows, for tables of many small groups."""
    keys = _keys(table, but)
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in each(table):
        groups.setdefault(tuple(value(row, column) for column in keys), []).append(row)
    yield from (group for group in groups.values() if len(group) > 1)


def _keys(table: pd.DataFrame, but: tuple[str, ...]) -> list[str]:
    if has(table, "n_layer", "n_embd") and any(column in but for column in ("sequence_length", *SHAPE)):
        but = (*but, *LABELS)  # the shape says which model it is, whatever it is called
    return [column for column in IDENTITY if column in table.columns and column not in but]


def neighbours(table: pd.DataFrame, axis: str, *columns: str) -> Iterator[tuple[Row, Row]]:
    """Pairs of adjacent rows (smaller, larger) along an axis of size, both with values in `columns`.

    Along `n_params` the larger model must have at least as many layers and at least the width of the smaller one:
    a wide and a deep model are not in order.
    """
    for group in alike_rows(measured(table, axis, *columns), SIZES[axis]):
        for smaller, larger in itertools.pairwise(sorted(group, key=lambda row: row[axis])):
            if larger[axis] > smaller[axis] and dominates(larger, smaller):
                yield smaller, larger


def dominates(larger: Row, smaller: Row) -> bool:
    """Whether no dimension of the model is smaller; models whose shape is unknown are taken to be in order."""
    pairs = [(value(larger, column), value(smaller, column)) for column in ("n_layer", "n_embd")]
    return all(a is None or b is None or a >= b for a, b in pairs)


def with_labels(table: pd.DataFrame) -> pd.DataFrame:
    """Adds `label`: the fewest columns of `NAMING`, in its order, that tell the rows apart, for people."""
    if "label" in table.columns:
        return table
    known = [column for column in NAMING if has(table, column)]
    chosen: list[str] = []
    for column in known:
        groups = table.groupby([*chosen, column], dropna=False).ngroups
        if groups > (table.groupby(chosen, dropna=False).ngroups if chosen else 1):
            chosen.append(column)
    chosen = chosen or known[:1]
    names = [", ".join(_say(column, row[column]) for column in chosen if value(row, column) is not None)
             for row in each(table)]  # fmt: skip
    return table.assign(label=[name or f"row {number}" for number, name in enumerate(names, 1)])


def _say(column: str, found: object) -> str:
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    return f"{SPOKEN.get(column, column)} {found}" if isinstance(found, int) else str(found)


def work(row: Row) -> tuple[float, str] | None:
    """FLOPs of the row's step and how they were counted: exact, or six per parameter and token; None if unknown.

    Source of the approximation: Kaplan et al. 2020, section 2.1.
    """
    flops, tokens = value(row, "flops"), value(row, "tokens_per_step")
    if flops is not None:
        return float(flops), "stated"
    if value(row, "flops_per_token") is not None and tokens is not None:
        return float(row["flops_per_token"]) * float(tokens), "counted"
    if value(row, "n_params") is not None:
        return 6 * float(row["n_params"]) * float(tokens or 1), "6 × parameters × tokens"
    return None
