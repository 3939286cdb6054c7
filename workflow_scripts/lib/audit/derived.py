"""Completes a table in normal form by what its own columns imply: counts, FLOPs and tokens."""

import pandas as pd

from workflow_scripts.lib.audit.frames import SHAPE, value
from workflow_scripts.lib.counts import count_parameters, flops_per_token
from workflow_scripts.lib.specs import ModelShape

DERIVED = ("n_params_counted", "n_params", "n_params_non_embedding", "flops_per_token", "tokens_per_step", "n_tokens")


def complete(table: pd.DataFrame) -> pd.DataFrame:
    """Fills empty cells of the derived columns where the row has what they are computed from."""
    table = table.copy()
    if "n_params" in table.columns:
        table["n_params_printed"] = table["n_params"]
    for index, row in table.iterrows():
        for column, found in _implied(row).items():
            if column not in table.columns:
                table[column] = pd.Series(float("nan"), index=table.index)
            if pd.isna(table.loc[index, column]):
                table.loc[index, column] = found
    return table


def _implied(row: pd.Series) -> dict[str, float]:
    found: dict[str, float] = {}
    batch, context, steps = (value(row, column) for column in ("batch_size", "sequence_length", "n_steps"))
    shape = shape_of(row)
    if shape is not None:
        parameters = count_parameters(shape)
        found |= {"n_params_counted": parameters.total, "n_params": parameters.total}
        found |= {"n_params_non_embedding": parameters.non_embedding}
        found |= {"flops_per_token": flops_per_token(shape, shape.sequence_length).training}
    if batch is not None and context is not None:
        found["tokens_per_step"] = batch * context
        if steps is not None:
            found["n_tokens"] = batch * context * steps
    if batch is not None and str(value(row, "accumulation") or "no") == "no":
        found["micro_batch_size"] = batch
    return {column: float(number) for column, number in found.items()}


def shape_of(row: pd.Series) -> ModelShape | None:
    """The row's model, if its shape and vocabulary are known; the inner width is four times the width unless given."""
    known = {column: value(row, column) for column in (*SHAPE, "sequence_length")}
    if any(found is None for column, found in known.items() if column != "n_inner"):
        return None
    numbers = {
        column: int(float(str(found)))
        for column, found in known.items()
        if column != "architecture" and found is not None
    }
    numbers.setdefault("n_inner", 4 * numbers["n_embd"])
    architecture = "llama" if known["architecture"] == "llama" else "gpt2"
    return ModelShape(architecture=architecture, bias=False, **numbers)
