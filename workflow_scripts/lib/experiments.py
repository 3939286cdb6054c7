"""What a training run of an experiment came to: its outcomes, each a number of which less is better.

Runs are set beside each other at equal tokens, at equal seconds, and by what it took to reach a loss; a run that never
reached it keeps that fact, with how far it went.
"""

import dataclasses
import json

import numpy as np
import pandas as pd

from workflow_scripts.lib.csv_tables import with_columns
from workflow_scripts.lib.loss_history import first_at, loss_at

BASELINE = "baseline"
SLACK = 0.02  # of a threshold of loss above what the baseline reached
MODEL = "model"  # the trained model as a factor, beside those that the study names


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """One way to measure a run: its unit, how it is called, and the fraction below which a change is none."""

    title: str
    unit: str
    margin: float


OUTCOMES = {
    "step_time_s": Outcome(title="step time", unit="s", margin=0.02),
    "token_time_s": Outcome(title="time per token", unit="s", margin=0.02),
    "train_s": Outcome(title="training time", unit="s", margin=0.02),
    "peak_bytes": Outcome(title="peak memory", unit="bytes", margin=0.02),
    "loss_at_tokens": Outcome(title="loss at equal tokens", unit="loss", margin=0.01),
    "loss_at_seconds": Outcome(title="loss at equal seconds", unit="loss", margin=0.01),
    "final_val_loss": Outcome(title="loss at its own end", unit="loss", margin=0.01),
    "train_loss_noise": Outcome(title="scatter of the training loss", unit="loss", margin=0.05),
    "tokens_to_loss": Outcome(title="tokens to the loss", unit="tokens", margin=0.05),
    "seconds_to_loss": Outcome(title="seconds to the loss", unit="s", margin=0.05),
}
AT_END = ("step_time_s", "train_s", "final_val_loss", "train_loss_noise")
TO_LOSS = ("tokens_to_loss", "seconds_to_loss")
IDENTITY = ["device", "name", "treatment", "levels", "seed", "status"]
FACTS = ["memory_kind", "equal_tokens", "equal_s", "threshold_loss", "tokens_at_end", "seconds_at_end", "record"]
COLUMNS = [*IDENTITY, *OUTCOMES, *FACTS]


def outcomes(runs: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """Derives the outcomes of each run; missing is NaN.

    Equal tokens are the most that every finished run on a device was evaluated at, equal seconds the most that every
    one of the same model was: a slow model's runs are not read where a fast one's end. The threshold of a model lies
    `SLACK` above the highest over seeds of the baseline's best validation loss: every baseline reaches it, and noise
    alone keeps no equal run from it.
    Between two evaluations a curve is taken as straight, and nothing is read off outside them.

    Args:
        runs: rows of runs.csv.
        curves: rows of curves.csv.

    Returns:
        One row a run that trained at all, in the columns `COLUMNS`. Of the outcomes in `TO_LOSS`, missing means never
        reached within `tokens_at_end` and `seconds_at_end`, if the run has a threshold.
    """
    kept = with_columns(runs, [*IDENTITY, *AT_END, "peak_allocated_bytes", "throughput_tokens_per_s", "record"])
    kept = kept[kept.status.isin(["ok", "diverged"])].reset_index(drop=True)
    if kept.empty:
        return pd.DataFrame(columns=COLUMNS)
    evaluated = curves[curves.val_loss.notna()].sort_values("step")
    histories = dict(iter(evaluated.groupby(["device", "run"], sort=False)))
    rows = []
    for _, on_device in kept.groupby("device", sort=False):
        allocated = on_device.peak_allocated_bytes.notna().all()
        memory = "peak_allocated_bytes" if allocated else "peak_process_bytes"
        equal_tokens = _reached(on_device, histories, "tokens")
        for name, of_model in on_device.groupby("name", sort=False):
            equal_s = _reached(of_model, histories, "elapsed_s")
            threshold = _threshold(of_model, histories)
            for run in of_model.to_dict("records"):
                history = histories.get((run["device"], run["run"]), evaluated.iloc[:0])
                finished = run["status"] == "ok"
                rows.append({
                    **{key: run[key] for key in IDENTITY},
                    "name": name,
                    **{key: run[key] if finished else np.nan for key in AT_END},
                    "token_time_s": 1 / run["throughput_tokens_per_s"] if finished else np.nan,
                    "peak_bytes": run.get(memory),
                    "loss_at_tokens": loss_at(history, "tokens", equal_tokens) if finished else np.nan,
                    "loss_at_seconds": loss_at(history, "elapsed_s", equal_s) if finished else np.nan,
                    "tokens_to_loss": first_at(history, "tokens", threshold),
                    "seconds_to_loss": first_at(history, "elapsed_s", threshold),
                    "memory_kind": memory.removeprefix("peak_").removesuffix("_bytes"),
                    "equal_tokens": equal_tokens, "equal_s": equal_s, "threshold_loss": threshold,
                    "tokens_at_end": history.tokens.max(), "seconds_at_end": history.elapsed_s.max(),
                    "record": run["record"],
                })  # fmt: skip
    return pd.DataFrame(rows, columns=COLUMNS)


def levels_of(row: dict) -> dict[str, str]:
    """The levels of a run by factor; a treatment without any is one level of a factor called `treatment`."""
    text = row.get("levels")
    levels = json.loads(text) if isinstance(text, str) and text else {}
    return levels or {"treatment": row["treatment"]}


def changed(levels: dict[str, str]) -> list[str]:
    """The factors that a treatment changes."""
    return [factor for factor, level in levels.items() if level != BASELINE]


def experiment(table: pd.DataFrame) -> bool:
    """Whether there is a treatment to compare with a baseline."""
    return len(table) > 0 and bool((table.treatment != BASELINE).any() and (table.treatment == BASELINE).any())


def _reached(runs: pd.DataFrame, histories: dict, axis: str) -> float:
    """How far along the axis every finished run was evaluated; NaN with none."""
    keys = [(r.device, r.run) for r in runs.itertuples() if r.status == "ok"]
    return min((float(histories[key].iloc[-1][axis]) for key in keys if key in histories), default=np.nan)


def _threshold(runs: pd.DataFrame, histories: dict) -> float:
    best = [
        histories[(r.device, r.run)].val_loss.min()
        for r in runs.itertuples()
        if r.treatment == BASELINE and r.status == "ok" and (r.device, r.run) in histories
    ]
    return max(best, default=np.nan) * (1 + SLACK)
