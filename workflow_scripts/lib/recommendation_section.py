"""The report's part on what to train where: the plans, what their checks measured, and where batches level off."""

from typing import Any

import pandas as pd

from workflow_scripts.lib.claims import STATUS_WORDS, Claim
from workflow_scripts.lib.page import Column, table
from workflow_scripts.lib.quantities import count, digits, is_missing, percent, plural, quantity, span, times, unit_for
from workflow_scripts.lib.recommendation import HEAD_SIZES, MIN_STEPS
from workflow_scripts.lib.selection import USUAL_PROPORTIONS
from workflow_scripts.lib.ways import WITHIN

PLANS = [
    Column(name="device", title="device"),
    Column(name="n_layer", title="layers", kind="count", measured=True),
    Column(name="n_head", title="heads", kind="count", measured=True),
    Column(name="n_embd", title="width", kind="count", measured=True),
    Column(name="n_params", title="parameters", kind="count", measured=True),
    Column(name="n_tokens", title="tokens", kind="count", measured=True),
    Column(name="n_steps", title="steps", kind="count", measured=True),
    Column(name="batch_size", title="batch", kind="count", measured=True),
    Column(name="precision", title="precision", measured=True),
    Column(name="execution", title="execution", measured=True),
    Column(name="predicted_train_s", title="training predicted", kind="s", measured=True),
    Column(name="predicted_step_time_s", title="step time predicted", kind="s", measured=True),
    Column(
        name="predicted_step_time_s", title="interval", kind="s", low="predicted_step_time_low_s",
        high="predicted_step_time_high_s", measured=True,
    ),
    Column(name="step_time_s", title="step time measured", kind="s", measured=True),
    Column(name="relative_error", title="predicted over measured, less one", kind="percent", measured=True),
    Column(name="predicted_peak_bytes", title="peak allocated predicted", kind="bytes", measured=True),
    Column(name="peak_allocated_bytes", title="measured", kind="bytes", measured=True),
    Column(name="bound", title="bound by", measured=True),
    Column(name="record", title="from", kind="record"),
]  # fmt: skip
BATCHES = [
    Column(name="device", title="device", axis=True),
    Column(name="model", title="model"),
    Column(name="n_params", title="parameters", kind="count"),
    Column(name="sequence_length", title="context", kind="count", axis=True),
    Column(name="precision", title="precision", axis=True),
    Column(name="execution", title="execution", axis=True),
    Column(name="batch_size", title="enough batch", kind="count"),
    Column(name="throughput_tokens_per_s", title="throughput there", kind="tokens/s"),
    Column(name="best_batch_size", title="best batch", kind="count"),
    Column(name="best_throughput_tokens_per_s", title="throughput there", kind="tokens/s"),
    Column(name="still_rising", title="may still rise"),
    Column(name="record", title="from", kind="record"),
]


def section(plans: pd.DataFrame, batches: pd.DataFrame, names: dict[str, str], study: str) -> dict[str, Any] | None:
    """The plans as a table with a sentence each, and the measured batches; None where nothing was asked for.

    Args:
        plans: the rows of recommendation.csv.
        batches: the rows of batches.csv.
        names: what each device is called, by id.
        study: the study's name.
    """
    if plans.empty:
        return None
    # In a row without a plan, the reason stands where the numbers would.
    shown = plans.assign(status=["unavailable" if reason else "ok" for reason in plans.reason])
    low, high = USUAL_PROPORTIONS
    return {
        "rule": (
            f"The largest model of heads {HEAD_SIZES[0]} or {HEAD_SIZES[1]} wide and {low} to {high} times as wide as "
            f"it has layers that sees the asked tokens per parameter in {quantity(plans.train_budget_s.iloc[0], 's')}; "
            f"its batch is the smallest within {percent(WITHIN)} of the best throughput that fits into memory and "
            f"leaves {MIN_STEPS} steps; its precision and execution are the fastest that were measured faster than "
            "training's own, or than those measured most where training's own were not, beyond noise, in every pair "
            "of cells, and that no check of correctness bars."
        ),
        "sentences": [_sentence(row, names) for row in plans.to_dict("records")],
        "plans": table(shown, PLANS, study) if plans.reason.isna().any() else None,
        "enough": f"The smallest batch within {percent(WITHIN)} of the best measured throughput of each model.",
        "batches": table(batches, BATCHES, study) if len(batches) else None,
    }


def claims(plans: pd.DataFrame, names: dict[str, str]) -> list[Claim]:
    """A sentence for each device that something is recommended for."""
    said = []
    for row in plans.to_dict("records"):
        if row["reason"]:
            continue
        record = (row["record"],) if row["record"] else ()
        said.append(
            Claim(
                topic="recommendation", text=_sentence(row, names), records=record,
                key=quantity(row["n_params"], "", 2) if row["n_params"] < 1e3 else _brief(row["n_params"]),
                within=f"parameters in {_time_taken(row)}",
                numbers={name: row[name] for name in ("n_params", "batch_size", "predicted_train_s")},
                subjects=frozenset({row["device"], *record}),
            )
        )  # fmt: skip
    return said


def _brief(n_params: float) -> str:
    scale, unit = unit_for([n_params], "FLOPs")
    return f"{n_params / scale:.3g}{unit.removesuffix('FLOPs')}"


def _sentence(row: dict[str, Any], names: dict[str, str]) -> str:
    device = names.get(row["device"], row["device"])
    if row["reason"]:
        return f"On {device}, nothing is recommended: {row['reason']}."
    return (
        f"On {device}, train {plural(int(row['n_layer']), 'layer')}, {count(row['n_embd'])} wide "
        f"({count(row['n_params'])} parameters), on {count(row['n_tokens'])} tokens at batch "
        f"{count(row['batch_size'])} in {row['precision']}, {row['execution']}{_why(row)}: "
        f"{quantity(row['predicted_train_s'], 's')}, predicted. {_check(row)}"
    )


def _why(row: dict[str, Any]) -> str:
    if is_missing(row["way_ratio"]):
        return ""
    pairs = plural(int(row["way_pairs"]), "pair")
    return f" (measured {times(row['way_ratio'])} as fast as {row['way_over']}, over {pairs} of cells)"


def _check(row: dict[str, Any]) -> str:
    if not row["status"]:
        return "No step of it was timed: the device is not here, and its recording has none of it."
    if row["status"] != "ok":
        why = STATUS_WORDS.get(row["status"], row["status"])
        return f"The step that was to check it has no measurement: {why}" + (
            f", {row['check_reason']}." if row["check_reason"] else "."
        )
    scale, unit = unit_for([row["step_time_s"]], "s")
    interval = f" ({span(row['step_time_low_s'], row['step_time_high_s'], scale)} {unit})"
    inside = ""
    if not is_missing(row["predicted_step_time_low_s"]):
        within = row["predicted_step_time_low_s"] <= row["step_time_s"] <= row["predicted_step_time_high_s"]
        inside = ", inside the interval predicted" if within else ", outside the interval predicted"
    off = "more" if row["relative_error"] > 0 else "less"
    return (
        f"Its step was predicted to take {quantity(row['predicted_step_time_s'], 's')} and took "
        f"{quantity(row['step_time_s'], 's')}{interval if not is_missing(row['step_time_low_s']) else ''}: predicted "
        f"{percent(abs(row['relative_error']))} {off}{inside}. At the measured pace training takes "
        f"{quantity(row['train_s'], 's')}{_over_budget(row)}{_seen_in_time(row)}."
    )


def _over_budget(row: dict[str, Any]) -> str:
    """What to say of the time allowed where training takes longer at the measured pace, nothing where it does not."""
    if is_missing(row["train_s"]) or row["train_s"] <= row["train_budget_s"]:
        return ""
    return f", more than the {quantity(row['train_budget_s'], 's')} allowed"


def _seen_in_time(row: dict[str, Any]) -> str:
    """How much of its text a training sees in the time allowed, where that is not all of it."""
    if not _over_budget(row):
        return ""
    seen = row["n_tokens"] * row["train_budget_s"] / row["train_s"]
    return f", in which it sees {digits(seen / row['n_params'])} tokens per parameter"


def _time_taken(row: dict[str, Any]) -> str:
    """The time allowed, or what the check says that training takes, if that is more."""
    over = _over_budget(row)
    return f"{quantity(row['train_s'], 's')}{over}" if over else quantity(row["train_budget_s"], "s")
