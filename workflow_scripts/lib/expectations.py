"""What three ways of expecting a step's time say of each measured cell: datasheet, measured ceiling, cost model."""

import pandas as pd

from workflow_scripts.lib import csv_tables, facets

WAYS = {
    "datasheet": "6N over the datasheet's rate",
    "ceiling": "model FLOPs over the measured rate",
    "model": "the cost model",
}
COLUMNS = ["way", "device", "cell", "model", "precision", "execution", "expected_s", "step_time_s", "relative_error",
           "record"]  # fmt: skip
NEEDED = ["device", "cell", "model", "precision", "execution", "n_params", "flops_per_token", "tokens_per_step",
          "predicted_step_time_s", "step_time_s", "record"]  # fmt: skip


def expectations(cells: pd.DataFrame, ceilings: pd.DataFrame) -> pd.DataFrame:
    """Gives a row for each way and measured full step of which it can say something.

    `datasheet` is 6 FLOPs for each parameter and token (Kaplan et al. 2020) at the rate that the vendor states,
    `ceiling` the FLOPs of all products with attention (PaLM, appendix B) at the measured rate of large products,
    `model` the cost model's prediction without the cell itself. `relative_error` is expected over actual, less 1.
    """
    table = csv_tables.with_columns(cells, NEEDED)
    timed = facets.timed_steps(table) if len(table) and "status" in table else table
    known = csv_tables.with_columns(ceilings, ["quantity", "best", "datasheet"])
    products = known[known.quantity == "matrix_product"].drop_duplicates(["device", "precision"])
    joined = timed.merge(products[["device", "precision", "best", "datasheet"]], on=["device", "precision"], how="left")
    joined = joined.astype(dict.fromkeys(("n_params", "best", "datasheet", "predicted_step_time_s"), float))
    said = {
        "datasheet": 6 * joined.n_params * joined.tokens_per_step / joined.datasheet,
        "ceiling": joined.flops_per_token * joined.tokens_per_step / joined.best,
        "model": joined.predicted_step_time_s,
    }
    rows = pd.concat([joined.assign(way=way, expected_s=expected) for way, expected in said.items()], ignore_index=True)
    rows = rows[rows.expected_s.notna() & (rows.expected_s > 0)]
    return rows.assign(relative_error=rows.expected_s / rows.step_time_s - 1)[COLUMNS].reset_index(drop=True)
