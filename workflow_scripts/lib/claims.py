"""The sentences of the report that carry numbers: written from the tables, with their uncertainty and their records.

A claim is withheld, and says why, where the audit found an error in what it rests on, or where it would compare things
that are not alike. Nothing here looks at a figure, and nobody types a number.
"""

import dataclasses
from collections.abc import Iterable

import pandas as pd

from workflow_scripts.lib import comparisons
from workflow_scripts.lib.comparisons import AXES, THRESHOLDS, Ratio
from workflow_scripts.lib.quantities import count, listing, percent, plural, quantity, span, times

STATUS_WORDS = {
    "oom": "out of memory", "predicted_oom": "predicted not to fit", "timeout": "over its time limit",
    "diverged": "diverged", "killed": "killed", "unavailable": "not available here", "barred": "barred by a check",
    "error": "failed",
}  # fmt: skip
QUANTITY_WORDS = {
    "total": "parameters", "non_embedding": "parameters without embeddings", "flops_per_token": "FLOPs per token",
    "activations_bytes": "bytes of activations", "activation_elements_per_token": "activations per token",
    "step_time": "predicted step time", "n_layer": "layers", "n_embd": "width",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """One sentence with what it rests on. `key` is its one number in short, `within` that number's interval."""

    topic: str
    text: str
    key: str = ""
    within: str = ""
    verdict: str = ""
    numbers: dict[str, float]
    records: tuple[str, ...] = ()
    subjects: frozenset[str] = frozenset()
    withheld: str | None = None


def subjects(rows: pd.DataFrame, identity: str) -> frozenset[str]:
    """All names by which a finding may mean one of `rows`."""
    return frozenset().union(*names_of_rows(rows, identity))


def names_of_rows(rows: pd.DataFrame, identity: str) -> list[frozenset[str]]:
    """The names by which a finding may mean each row: its device, its id, both, or its record."""
    return [
        frozenset({str(row["device"]), str(row[identity]), f"{row['device']}/{row[identity]}"})
        | ({str(row["record"])} if row.get("record") else frozenset())
        for row in rows.to_dict("records")
    ]


def is_subject(subject: str, names: frozenset[str]) -> bool:
    """Whether a finding's subject is among `names`, as it stands or as a record's path from the working directory."""
    return subject in names or any(name.endswith(".json") and subject.endswith("/" + name) for name in names)


def judged(claim: Claim, findings: Iterable[dict]) -> Claim:
    """Withholds a claim if a finding of severity `error` concerns what it rests on; a loss does not rest on times."""
    for finding in findings:
        grave = finding["severity"] == "error" and not (finding["doubts"] == "time" and claim.topic == "loss")
        if claim.withheld is None and grave and is_subject(finding["subject"], claim.subjects):
            return dataclasses.replace(claim, withheld=f"{finding['subject']}: {finding['message']}")
    return claim


def barred_rows(rows: pd.DataFrame, identity: str, findings: Iterable[dict]) -> pd.Series:
    """Marks the rows that a finding of severity `error` concerns; they are shown, and not ranked."""
    errors = [finding["subject"] for finding in findings if finding["severity"] == "error"]
    marks = [any(is_subject(subject, names) for subject in errors) for names in names_of_rows(rows, identity)]
    return pd.Series(marks, index=rows.index, dtype=bool)


def shape(row: pd.Series) -> str:
    """Names a model by its shape: 4 layers, 144 wide."""
    return f"{plural(int(row.n_layer), 'layer')}, {int(row.n_embd):,} wide"


def write_claims(
    *, cells: pd.DataFrame, runs: pd.DataFrame, devices: pd.DataFrame, processes: pd.DataFrame, selection: dict,
    cost_model: dict, findings: list[dict],
) -> list[Claim]:  # fmt: skip
    """Writes the claims of the first screen, in the order in which they answer the reader's question."""
    names = dict(zip(devices.device, devices.name, strict=True)) if len(devices) else {}
    ended = runs[(runs.status == "ok") & (runs.treatment == "baseline")] if len(runs) else runs
    timed = cells[(cells.status == "ok") & (cells["mode"] == "step")] if len(cells) else cells
    timed = timed[~barred_rows(timed, "cell", findings)]
    claims: list[Claim] = []
    if len(ended):
        for device, group in ended.groupby("device", sort=False):
            claims += _roles(group, names.get(device, device), comparisons.noise_floor(processes, device), selection)
        claims += _devices(ended, names)
        for device, group in ended.groupby("device", sort=False):
            claims += _losses(group, names.get(device, device))
    if len(timed):
        claims += _effects(timed, names, processes)
    claims += _prediction(cost_model, names)
    return [judged(claim, findings) for claim in claims]


def compare(a: pd.DataFrame, b: pd.DataFrame, floor: float | None) -> tuple[Ratio, str, str | None] | None:
    """Compares the throughput of two groups of runs: ratio, verdict, and what makes them unlike, if anything does."""
    first, second = (comparisons.pool(rows, "throughput_tokens_per_s") for rows in (a, b))
    if first is None or second is None:
        return None
    both = pd.concat([a, b])
    work = ("batch_size", "sequence_length", "precision")
    # Each device does the work in the way that it does best; on one device, another way is another thing compared.
    axes = work if both.device.nunique() > 1 else (*work, "execution")
    unlike = [name for name in axes if both[name].nunique() > 1]
    reason = f"the runs differ in {listing(AXES[name] for name in unlike)}" if unlike else None
    compared = comparisons.ratio(first, second)
    return compared, comparisons.verdict(compared, floor), reason


def _roles(runs: pd.DataFrame, device: str, floor: float | None, selection: dict) -> Iterable[Claim]:
    """Which of the first two models of a device trains faster."""
    models = list(dict.fromkeys(runs.name))[:2]
    if len(models) < 2:
        return
    groups = [runs[runs["name"] == model] for model in models]
    result = compare(*groups, floor)
    if result is None:
        return
    compared, verdict, unlike = result
    if compared.value < 1:
        compared, groups, models = compared.inverse(), groups[::-1], models[::-1]
        verdict = {"slower": "faster"}.get(verdict, verdict)
    a, b = (f"`{model}` ({shape(group.iloc[0])})" for model, group in zip(models, groups, strict=True))
    speeds = [float(group.throughput_tokens_per_s.median()) for group in groups]
    within = span(compared.low, compared.high)
    pair = f"{quantity(speeds[0], 'tokens/s')} against {quantity(speeds[1], 'tokens/s')}"
    sentence = {
        "faster": f"{a} trains {times(compared.value)} ({within}) as many tokens per second as {b}: {pair}.",
        "same": f"{a} and {b} train at the same speed: {pair}, a ratio of {times(compared.value)} ({within}).",
        "undecided": f"it is undecided whether {a} or {b} trains faster: {pair}, a ratio of "
        f"{times(compared.value)} ({within}).",
    }[verdict]
    yield Claim(
        topic="training", text=f"On {device}, {sentence}{_matched(selection, models)}", key=times(compared.value),
        within=f"{within}, undecided" if verdict == "undecided" else within,
        verdict=verdict, records=compared.records, subjects=subjects(runs, "run"), withheld=unlike,
        numbers={"ratio": compared.value, "low": compared.low, "high": compared.high, "a": speeds[0], "b": speeds[1]},
    )  # fmt: skip


def _matched(selection: dict, models: list[str]) -> str:
    """How equal the two models are, in the quantity that they were matched on and in those where they are not."""
    ratios = selection.get("ratios", {})
    if set(models) != {"wide", "deep"} or selection.get("quantity") not in ratios:
        return ""
    quantity_name = selection["quantity"]
    text = f" They have equal {QUANTITY_WORDS.get(quantity_name, quantity_name)} within "
    text += percent(abs(ratios[quantity_name] - 1))
    unlike = [
        f"{times(value)} the {QUANTITY_WORDS.get(name, name)}"
        for name, value in ratios.items()
        if name not in (quantity_name, *comparisons.INTENDED) and abs(value - 1) > THRESHOLDS["listed_ratio"]
    ]
    return text + (f"; `deep` has {listing(unlike)}." if unlike else ".")


def _devices(runs: pd.DataFrame, names: dict[str, str]) -> Iterable[Claim]:
    """How much faster each model trains on the fastest device than on each other one."""
    for model, group in runs.groupby("name", sort=False):
        speeds = group.groupby("device", sort=False).throughput_tokens_per_s.median().dropna()
        if len(speeds) < 2:
            continue
        fastest = speeds.idxmax()
        for device in speeds.index.drop(fastest):
            pair = group[group.device.isin([fastest, device])]
            compared, verdict, unlike = compare(pair[pair.device == fastest], pair[pair.device == device], None)
            how = "" if verdict == "faster" else f" (verdict: {verdict})"
            within = span(compared.low, compared.high)
            yield Claim(
                topic="devices", key=times(compared.value), within=within, verdict=verdict, records=compared.records,
                text=f"`{model}` trains {times(compared.value)} ({within}) as fast on {names.get(fastest, fastest)} as "
                f"on {names.get(device, device)}{how}: {quantity(speeds[fastest], 'tokens/s')} against "
                f"{quantity(speeds[device], 'tokens/s')}.",
                subjects=subjects(pair, "run"), withheld=unlike,
                numbers={"ratio": compared.value, "low": compared.low, "high": compared.high},
            )  # fmt: skip


def _losses(runs: pd.DataFrame, device: str) -> Iterable[Claim]:
    """What validation loss the models reached, compared at equal tokens and across seeds only."""
    runs = runs[runs.final_val_loss.notna()]
    if runs.empty:
        return
    ranked = sorted(runs.groupby("name", sort=False), key=lambda item: item[1].final_val_loss.mean())
    told, numbers = [], {}
    for name, group in ranked:
        losses = group.final_val_loss
        spread = f"{losses.min():.3f}–{losses.max():.3f} over {len(losses)} seeds" if len(losses) > 1 else "one seed"
        told.append(f"{losses.mean():.3f} for `{name}` ({spread})")
        numbers[name] = float(losses.mean())
    tokens = sorted(set(runs.n_tokens))
    text = f"On {device}, after training on {listing(count(n) for n in tokens)} tokens, validation loss in nats per "
    text += f"token is {listing(told)}."
    for name, group in ranked:
        best = group.best_val_loss.mean()
        if group.final_val_loss.mean() > (1 + THRESHOLDS["settled"]) * best:
            text += f" `{name}` ends past its best: it was at {best:.3f} by step {group.best_val_step.median():,.0f}."
    unlike, verdict = None, ""
    if len(ranked) > 1:
        (lower, a), (higher, b) = ranked[:2]
        verdict = "undecided"
        if len(tokens) > 1:
            unlike = "the runs ended at different numbers of tokens"
        elif a.final_val_loss.max() >= b.final_val_loss.min():
            text += f" The seeds of `{lower}` and `{higher}` overlap, so which ends lower is undecided."
        elif min(len(a), len(b)) < THRESHOLDS["seeds"]:
            text += f" Every seed of `{lower}` ended below every seed of `{higher}`; with fewer than "
            text += f"{THRESHOLDS['seeds']} seeds each, that is no proof."
        else:
            verdict = "lower"
            text += f" Every seed of `{lower}` ended below every seed of `{higher}`."
    best = f"{ranked[0][1].final_val_loss.mean():.3f}"
    yield Claim(
        topic="loss", text=text, key=best, within=f"nats per token, `{ranked[0][0]}`", verdict=verdict, numbers=numbers,
        records=tuple(runs.record.dropna()), subjects=subjects(runs, "run"), withheld=unlike,
    )  # fmt: skip


def _effects(cells: pd.DataFrame, names: dict[str, str], processes: pd.DataFrame) -> Iterable[Claim]:
    """What each axis of the grid does to throughput: the outermost value against the reference, all else equal."""
    pairs = comparisons.effects(cells)
    for (device, axis, value), group in pairs.groupby(["device", "axis", "value"], sort=False):
        everything = pairs[(pairs.device == device) & (pairs.axis == axis)]
        if axis in ("batch_size", "sequence_length") and float(value) != everything.value.astype(float).max():
            continue
        reference, middle = group.reference.iloc[0], float(group.ratio.median())
        floor = comparisons.noise_floor(processes, device)
        verdicts = [comparisons.verdict(comparisons.as_ratio(pair), floor) for pair in group.itertuples()]
        words = {"faster": "more", "slower": "fewer", "same": "the same", "undecided": "undecided"}
        told = listing(f"{n:,} {word}" for kind, word in words.items() if (n := verdicts.count(kind)))
        if len(group) > 1:
            within = span(group.ratio.min(), group.ratio.max())
            told = f"{within} over {plural(len(group), 'pair')} of cells, {told}"
        else:
            within = span(group.low.min(), group.high.max())
            told = f"{within}, one pair of cells"
        records = tuple(group.record.dropna()) + tuple(group.record_reference.dropna())
        used = cells[cells.record.isin(records)]
        text = f"On {names.get(device, device)}, {AXES[axis]} {value} gives {times(middle)} the tokens per second of "
        text += f"{AXES[axis]} {reference}, all else equal ({told})."
        yield Claim(
            topic="grid", text=text, key=times(middle), within=within, records=records, subjects=subjects(used, "cell"),
            numbers={"ratio": middle, "pairs": len(group)},
        )  # fmt: skip


def _prediction(cost_model: dict, names: dict[str, str]) -> Iterable[Claim]:
    """How far the cost model is off where it had not been fitted."""
    for device, groups in cost_model.get("devices", {}).items():
        for group, model in groups["errors"].items():
            error, n_fitted = model["leave_one_out_error"], model["n_fitted"]
            if n_fitted < 2:
                continue
            others = "one other" if n_fitted == 2 else f"{n_fitted - 1:,} others"
            text = (
                f"On {names.get(device, device)}, the step time of a cell in `{group}` is predicted with a mean "
                f"absolute error of {percent(error)} by a cost model fitted on the {others}."
            )
            yield Claim(
                topic="prediction", key=percent(error), within="mean absolute error", text=text,
                numbers={"error": error, "n_fitted": n_fitted}, subjects=frozenset({device}),
            )  # fmt: skip


def failures(rows: pd.DataFrame, noun: str) -> str:
    """Counts what has no measurement, by reason, in one sentence; empty if everything was measured."""
    failed = rows[rows.status != "ok"] if len(rows) else rows
    if failed.empty:
        return ""
    counts = failed.status.value_counts(sort=False)
    reasons = [f"{n:,} {STATUS_WORDS.get(status, status)}" for status, n in counts.items()]
    lack = "has" if len(failed) == 1 else "have"
    return f"Of {plural(len(rows), noun)}, {len(failed):,} {lack} no measurement: {listing(reasons)}."
