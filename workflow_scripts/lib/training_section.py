"""The report's part on what the trainings show: where they converged, their slow steps, the optimizers."""

import itertools
from collections.abc import Iterable

import numpy as np
import pandas as pd

from workflow_scripts.lib.comparisons import THRESHOLDS
from workflow_scripts.lib.convergence import order
from workflow_scripts.lib.page import Column
from workflow_scripts.lib.parts import Part, shown
from workflow_scripts.lib.quantities import digits, is_missing, listing, percent, plural, quantity, span, times
from workflow_scripts.lib.spikes import UNEXPLAINED

SHOWN_SPIKES = 30
RUN = [
    Column(name="device", title="device", axis=True),
    Column(name="name", title="model", axis=True),
    Column(name="treatment", title="treatment", axis=True),
    Column(name="seed", title="seed", kind="count", axis=True),
]
CONVERGENCE = [
    *RUN,
    Column(name="final_val_loss", title="last validation loss", kind="loss", measured=True),
    Column(name="lowest_val_loss", title="lowest", kind="loss", measured=True),
    Column(name="lowest_tokens", title="after", kind="tokens", measured=True),
    Column(name="risen", title="risen since", kind="percent", measured=True),
    Column(name="converged", title="converged", measured=True),
    Column(name="settled_tokens", title="after", kind="tokens", measured=True),
    Column(name="settled_tokens", title="between evaluations at", kind="tokens", low="settled_low_tokens",
           high="settled_high_tokens", measured=True),
    Column(name="settled_s", title="or after", kind="s", measured=True),
    Column(name="late_change", title="change in the last fifth", kind="percent", measured=True),
    Column(name="steady", title="steady at the end", measured=True),
    Column(name="grad_norm_level", title="gradient norm at the end", kind="number", measured=True),
    Column(name="grad_settled_step", title="norm settled at step", kind="count", measured=True),
]  # fmt: skip
SPIKES = [
    *RUN,
    Column(name="step", title="from step", kind="count"),
    Column(name="n_steps", title="steps", kind="count"),
    Column(name="step_time_s", title="longest", kind="s"),
    Column(name="relative", title="over its neighbours", kind="ratio"),
    Column(name="extra_s", title="cost", kind="s"),
    Column(name="cause", title="cause"),
    Column(name="evidence", title="by"),
    Column(name="record", title="from", kind="record"),
]
SWEEP = [
    Column(name="device", title="device", axis=True),
    Column(name="name", title="model", axis=True),
    Column(name="optimizer", title="optimizer"),
    Column(name="learning_rate", title="learning rate", kind="number"),
    Column(name="val_loss", title="loss at equal tokens", kind="loss", measured=True),
    Column(name="val_loss", title="over seeds", kind="", low="val_loss_low", high="val_loss_high", measured=True),
    Column(name="val_loss_at_seconds", title="loss at equal seconds", kind="loss", measured=True),
    Column(name="n_seeds", title="seeds", kind="count", axis=True),
    Column(name="n_diverged", title="diverged", kind="count", axis=True),
    Column(name="best", title="best of its optimizer"),
    Column(name="at_edge", title="place among the rates"),
]


def section(tables: dict[str, pd.DataFrame], study: str) -> list[Part]:
    """The parts that there is something to say in: convergence, slow steps, optimizers."""
    makers = (_convergence, _spikes, _optimizers)
    return [part for make in makers if (part := make(tables, study)) is not None]


def _convergence(tables: dict[str, pd.DataFrame], study: str) -> Part | None:
    rows = tables["convergence"]
    if rows.empty:
        return None
    rule = (
        f"A run has converged once its validation loss, smoothed over three evaluations, stays within "
        f"{percent(THRESHOLDS['settled'])} of its last value, unless that lies further than this above its lowest; its "
        f"state is steady if the last fifth of the run "
        f"moved it by less than {percent(THRESHOLDS['steady'])}. The gradient norm has settled once its running median "
        f"stays within {percent(THRESHOLDS['settled_norm'])} of its last level."
    )
    judged = np.where(rows.risen > THRESHOLDS["settled"], "past its best", None)
    rows = rows.assign(converged=np.where(rows.settled_tokens.notna(), "yes", judged))
    base = rows[rows.treatment == "baseline"]
    told = [sentence for _, group in base.groupby("device", sort=False) for sentence in convergence_sentences(group)]
    return Part(
        title="Convergence and steady state", sentences=[rule, *told], figures=[],
        tables=shown(rows, CONVERGENCE, study, "Where each training converged", "convergence"),
    )  # fmt: skip


def convergence_sentences(rows: pd.DataFrame) -> Iterable[str]:
    """What can be said of the models of one device: an order only where the intervals of all seeds are apart."""
    device = rows.device.iloc[0]
    risen = rows[rows.risen > THRESHOLDS["settled"]]
    for model, own in risen.groupby("name", sort=False):
        runs = plural(int((rows.name == model).sum()), "run")
        yield (
            f"On {device}, `{model}` ends past its best: its validation loss was lowest, "
            f"{own.lowest_val_loss.median():.3f}, after {quantity(own.lowest_tokens.median(), 'tokens')}, and rose by "
            f"{percent(own.risen.median())} until the end ({len(own):,} of {runs})."
        )
    settled = rows.dropna(subset=["settled_tokens"])
    models = list(dict.fromkeys(settled.name))
    if not models:
        if risen.empty:
            yield f"On {device}, too few evaluations tell where a run converged."
        return
    told = []
    for model in models:
        own = settled[settled.name == model]
        unsteady = int((own.steady.astype(str) != "True").sum())
        end = "steady at the end" if not unsteady else f"{unsteady:,} of {len(own):,} still moving at the end"
        between = _tokens(own.settled_low_tokens.min(), own.settled_high_tokens.max())
        told.append(f"`{model}` after {quantity(own.settled_tokens.median(), 'tokens')} ({between}, {end})")
    yield f"On {device}, the loss converged for {listing(told)}."
    for a, b in itertools.pairwise(models):
        found = order(rows, a, b, ("settled_low_tokens", "settled_high_tokens"))
        ratio = settled[settled.name == b].settled_tokens.median() / settled[settled.name == a].settled_tokens.median()
        if found == "undecided":
            few = settled.groupby("name").seed.nunique().min()
            why = f"{plural(int(few), 'seed')} each" if few < THRESHOLDS["seeds"] else "their intervals meet"
            yield f"On {device}, whether `{a}` or `{b}` converges earlier is undecided: {why}."
        else:
            first, second, by = (a, b, ratio) if found == "earlier" else (b, a, 1 / ratio)
            yield f"On {device}, `{first}` converges earlier: `{second}` takes {times(by)} the tokens."


def _tokens(low: float, high: float) -> str:
    return f"between {quantity(low, 'tokens')} and {quantity(high, 'tokens')}"


def _spikes(tables: dict[str, pd.DataFrame], study: str) -> Part | None:
    rows = tables["spikes"]
    if rows.empty:
        return None
    told = [
        f"A step is called a spike if it exceeds its neighbours' running median, or the run's where that is lower, by "
        f"{digits(THRESHOLDS['spike_deviations'], 2)} robust deviations and by {percent(THRESHOLDS['spike_excess'])}; "
        "neighbouring ones are one event.",
        *spike_sentences(rows),
    ]
    ordered = rows.sort_values("extra_s", ascending=False, kind="stable")
    listed = shown(ordered, SPIKES, study, "Spikes, the costliest first", "spikes", SHOWN_SPIKES)
    return Part(title="Slow steps", sentences=told, figures=[], tables=listed)


def spike_sentences(rows: pd.DataFrame) -> Iterable[str]:
    """How many spikes each device had, what they cost, and how many of them stay unexplained."""
    for device, group in rows.groupby("device", sort=False):
        causes = group.cause.value_counts()
        parts = [f"{n:,} {'unexplained' if cause == UNEXPLAINED else f'by {cause}'}" for cause, n in causes.items()]
        later = group[group.cause != "first step"]
        text = f"On {device}, {plural(len(group), 'event')} of slow steps: {listing(parts)}."
        if len(later):
            worst = later.loc[later.extra_s.idxmax()]
            text += (
                f" After the first step the costliest took {quantity(worst.extra_s, 's')} more than usual, from step "
            )
            text += (
                f"{int(worst.step):,} of `{worst.run}` on, over {plural(int(worst.n_steps), 'step')}: {worst.cause}."
            )
        if not group.looked.astype(str).eq("True").any():
            text += " Nobody could look at clocks and load meanwhile without disturbing the measurement."
        yield text


def _optimizers(tables: dict[str, pd.DataFrame], study: str) -> Part | None:
    rows = tables["optimizer_sweep"]
    if rows.empty:
        return None
    told = [text for _, group in rows.groupby(["device", "name"], sort=False) for text in optimizer_sentences(group)]
    placed = rows.assign(at_edge=rows.at_edge.fillna("–"))
    return Part(
        title="Optimizers and their learning rates", sentences=told, figures=[("optimizers", "Optimizers")],
        tables=shown(placed, SWEEP, study, "Every optimizer at every learning rate", "optimizer_sweep"),
    )  # fmt: skip


def optimizer_sentences(rows: pd.DataFrame) -> Iterable[str]:
    """The best rate of each optimizer of one model on one device, and where the grid of rates was too narrow."""
    where = f"`{rows['name'].iloc[0]}` on {rows['device'].iloc[0]}"
    best = rows[rows.best.astype(str) == "True"].sort_values("val_loss", kind="stable")
    if best.empty:
        return
    tokens = quantity(best.tokens.iloc[0], "tokens")
    told = [f"{r.optimizer} {r.val_loss:.3f} at {digits(r.learning_rate, 2)} ({_seeds(r)})" for r in best.itertuples()]
    yield f"With each at its best learning rate, {where} came after {tokens} to a validation loss of {listing(told)}."
    timed = best.dropna(subset=["val_loss_at_seconds"]).sort_values("val_loss_at_seconds", kind="stable")
    if len(timed) > 1:
        told = [f"{r.optimizer} {r.val_loss_at_seconds:.3f}" for r in timed.itertuples()]
        slow = listing(row.optimizer for row in best[best.val_loss_at_seconds.isna()].itertuples())
        late = f"; {slow} had no evaluation by then" if slow else ""
        yield f"After equal {quantity(timed.seconds.iloc[0], 's')} of training it is {listing(told)}{late}."
    edge = best[best.at_edge != "inside"]
    if len(edge):
        ends = [
            f"{r.optimizer} ({'only one was tried' if r.at_edge == 'only' else r.at_edge})" for r in edge.itertuples()
        ]
        yield f"The best rate lies at the edge of those tried for {listing(ends)}: a rate beyond may be better."


def _seeds(row: object) -> str:
    if is_missing(row.val_loss_low):
        return "one seed"
    return f"{span(row.val_loss_low, row.val_loss_high)} over {plural(int(row.n_seeds), 'seed')}"
