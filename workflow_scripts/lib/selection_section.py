"""The report's part on the selection: the chosen models, what was expected of them, the reasons."""

from typing import Any

import pandas as pd

from workflow_scripts.lib import report_tables
from workflow_scripts.lib.claims import QUANTITY_WORDS
from workflow_scripts.lib.page import Column, plain, table
from workflow_scripts.lib.quantities import count, listing, percent, quantity, times

RUNNERS_UP = [
    Column(name="wide", title="wide, layers × width"),
    Column(name="balanced", title="balanced", measured=True),
    Column(name="deep", title="deep, layers × width"),
    Column(name="wide_size", title="size of the wide one", kind="number"),
    Column(name="mismatch", title="deep over wide, less one", kind="percent"),
]


def section(chosen: dict[str, Any], study: str) -> dict[str, Any] | None:
    """The choice of the models: shapes, predicted costs, ratios, reasons, runners-up; None if there was none."""
    if not chosen:
        return None
    roles = [
        {"role": role, **values["shape"], **values["params"], "flops_per_token": values["flops_per_token"]}
        for role, values in chosen["roles"].items()
    ]
    predicted = [
        {"role": role, "device": device, **cost}
        for role, values in chosen["roles"].items()
        for device, cost in values.get("predicted", {}).items()
    ]
    runners_up = pd.DataFrame(chosen.get("runners_up", []))
    return {
        "lead": _lead(chosen),
        "roles": table(pd.DataFrame(roles), report_tables.ROLES, study),
        "predicted": table(pd.DataFrame(predicted), report_tables.PREDICTED, study) if predicted else None,
        "ratios": [(QUANTITY_WORDS.get(name, name), times(value)) for name, value in chosen["ratios"].items()],
        "reasons": [plain(reason) for reason in chosen.get("reasons", [])],
        "runners_up": table(runners_up, RUNNERS_UP, study) if len(runners_up) else None,
    }


def _lead(chosen: dict[str, Any]) -> str:
    budgets = chosen["budgets"]
    limits = f"{quantity(budgets['memory_gib'] * 2**30, 'bytes')} of peak allocated memory and "
    limits += f"{quantity(budgets['train_minutes'] * 60, 's')} of training time"
    matched = [f"`{role}`" for role in chosen["roles"] if role != "largest"]
    told = []
    if matched:
        name = chosen["quantity"]
        told.append(
            f"{listing(matched)} have equal {QUANTITY_WORDS.get(name, name)} within {percent(chosen['tolerance'])}, "
            f"from {count(chosen['n_candidates'])} shapes of about the asked size; "
            f"{count(chosen['n_within_budgets'])} pairs met all that was asked."
        )
    if "largest" in chosen["roles"]:
        told.append("`largest` is the largest of usual proportions.")
    n_field = chosen.get("n_field")
    considered = f" {count(n_field)} shapes were considered." if n_field else ""
    if chosen.get("adopted_from"):
        where = listing([f"`{device}`" for device in chosen["adopted_from"]])
        return (
            f"Adopted from the recording of {where}, where they were chosen by prediction.{considered} {' '.join(told)}"
        )
    return f"Chosen by prediction, inside the budgets of {limits} on every device.{considered} {' '.join(told)}"
