"""The report's part on sizes: passes over models, what precision and execution are worth, what fits, isolation."""

from collections.abc import Iterator

import pandas as pd

from workflow_scripts.lib import variability
from workflow_scripts.lib.page import Column
from workflow_scripts.lib.parts import Part, shown
from workflow_scripts.lib.quantities import count, is_missing, listing, percent, plural, quantity, span, times
from workflow_scripts.lib.room_table import HALF, HOLDS, OPEN, WRONG
from workflow_scripts.lib.sizes_table import BASE, SIZES, in_order, of_sizes

DEVICE = Column(name="device", title="device", axis=True)
MODEL = Column(name="model", title="model")
PARAMETERS = Column(name="n_params", title="parameters", kind="count")
WORK = [
    Column(name="batch_size", title="batch", kind="count", axis=True),
    Column(name="sequence_length", title="context", kind="count", axis=True),
]
WAY = [
    Column(name="precision", title="precision", axis=True),
    Column(name="execution", title="execution", axis=True),
]
RECORD = Column(name="record", title="from", kind="record")
ASKED = ("forward", "forward_backward", "step")


def section(tables: dict[str, pd.DataFrame], hardware: dict[str, str], study: str) -> list[Part]:
    """The parts that there is something to say in; none for a study without three models' three passes.

    Args:
        tables: `passes`, `speedups`, `room`, `isolation` and `cells`; any may have no rows.
        hardware: names of devices by id.
        study: its name, for links to records.
    """
    given = {name: tables.get(name, pd.DataFrame()) for name in ("passes", "speedups", "room", "isolation", "cells")}
    passes = of_sizes(given["passes"])
    found = [_isolation(given["isolation"], hardware, study)]
    if len(passes) and all(passes[passes["pass"] == asked].model.nunique() >= SIZES for asked in ASKED):
        found = [
            _passes(passes, hardware, study),
            _variation(passes, given["cells"], hardware),
            _speedups(of_sizes(given["speedups"], least=1), hardware, study),
            _room(given["room"], hardware, study),
            *found,
        ]
    return [part for part in found if part is not None]


def _passes(rows: pd.DataFrame, hardware: dict[str, str], study: str) -> Part:
    columns = [
        DEVICE, MODEL, PARAMETERS, *WORK,
        Column(name="pass", title="pass"),
        *WAY,
        Column(name="mean_s", title="mean", kind="s", measured=True),
        Column(name="std_s", title="standard deviation", kind="s", measured=True),
        Column(name="cv", title="coefficient of variation", kind="percent", measured=True),
        Column(name="time_s", title="median", kind="s", measured=True),
        Column(name="time_s", title="interval", kind="s", low="time_low_s", high="time_high_s", measured=True),
        Column(name="over_forward", title="over forward", kind="ratio", measured=True),
        Column(name="n_samples", title="samples", kind="count", measured=True),
        Column(name="peak_allocated_bytes", title="peak allocated", kind="bytes", measured=True),
        RECORD,
    ]  # fmt: skip
    text = (
        "A backward pass alone is a forward and backward less a forward, an update of the weights a step less a "
        "forward and backward. Such differences carry the spread of both sides."
    )
    return Part(
        title="Forward, backward and step",
        sentences=[*_growth(rows, hardware), *_backward(rows, hardware), text],
        figures=[("sizes", "Time over size")],
        tables=shown(rows, columns, study, "Passes of each model", "passes", most=len(rows)),
    )  # fmt: skip


def _base(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[(rows.precision == BASE[0]) & (rows.execution == BASE[1])]


def _growth(rows: pd.DataFrame, hardware: dict[str, str]) -> Iterator[str]:
    steps = _base(rows)
    steps = steps[(steps["pass"] == "step") & steps.time_s.notna()]
    for device, group in steps.groupby("device", sort=False):
        small, large = group.loc[group.n_params.idxmin()], group.loc[group.n_params.idxmax()]
        yield (
            f"On {hardware.get(device, device)} a step in {', '.join(BASE)}, takes {quantity(small.time_s, 's')} "
            f"for `{small.model}` and {quantity(large.time_s, 's')} for `{large.model}`: "
            f"{times(large.time_s / small.time_s)} the time for {times(large.n_params / small.n_params)} the "
            "parameters."
        )


def _backward(rows: pd.DataFrame, hardware: dict[str, str]) -> Iterator[str]:
    known = _base(rows)
    known = known[(known["pass"] == "backward") & known.over_forward.notna()].sort_values("n_params")
    for device, group in known.groupby("device", sort=False):
        told = [
            f"{times(row.over_forward)} ({span(row.over_forward_low, row.over_forward_high)}) for `{row.model}`"
            for row in group.itertuples()
        ]
        yield f"On {hardware.get(device, device)} a backward pass takes {listing(told)} the time of a forward pass."


def _spread(rows: pd.DataFrame, hardware: dict[str, str]) -> Iterator[str]:
    known = rows[rows["pass"].isin(ASKED) & rows.cv.notna()]
    for device, group in known.groupby("device", sort=False):
        least, most = group.loc[group.cv.idxmin()], group.loc[group.cv.idxmax()]
        yield (
            f"On {hardware.get(device, device)} the coefficient of variation lies between {percent(least.cv)} and "
            f"{percent(most.cv)}; the largest is that of `{most.model}`, {most['pass'].replace('_', ' and ')}, in "
            f"{most.precision}, {most.execution}."
        )


def _variation(rows: pd.DataFrame, cells: pd.DataFrame, hardware: dict[str, str]) -> Part:
    sentences = [*_spread(rows, hardware), *variability.causes(cells, hardware)]
    return Part(title="Why times vary", sentences=sentences, figures=[], tables=[])


def _speedups(rows: pd.DataFrame, hardware: dict[str, str], study: str) -> Part | None:
    if rows.empty:
        return None
    columns = [
        DEVICE, MODEL, PARAMETERS, *WORK,
        Column(name="mode", title="pass", axis=True),
        *WAY,
        Column(name="time_s", title="median", kind="s"),
        Column(name="speedup", title="times as fast", kind="ratio"),
        Column(name="speedup", title="interval", kind="", low="low", high="high"),
        Column(name="verdict", title="verdict"),
        Column(name="memory_ratio", title="peak allocated over fp32's", kind="ratio", measured=True),
        RECORD,
    ]  # fmt: skip
    steps = rows[rows["mode"] == "step"]
    sentences = []
    for (device, precision, execution), group in steps.groupby(["device", "precision", "execution"], sort=False):
        ends = [group.loc[group.n_params.idxmin()], group.loc[group.n_params.idxmax()]]
        told = [
            f"{times(row.speedup)} ({span(row.low, row.high)}) as fast for `{row.model}`"
            for row in (ends if len(group) > 1 else ends[:1])
        ]
        undecided = int((group.verdict == "undecided").sum())
        rest = f"; undecided for {undecided:,} of {plural(len(group), 'model')}" if undecided else ""
        sentences.append(
            f"On {hardware.get(device, device)} {precision}, {execution}, makes a step {listing(told)}{rest}."
        )
    return Part(
        title="What precision and execution are worth, by size", sentences=sentences,
        figures=[("speedups", "Speed-up over size")],
        tables=shown(rows, columns, study, "Times as fast as fp32, eager, at the same pass, batch and context",
                     "speedups", most=len(rows)),
    )  # fmt: skip


def _room(rows: pd.DataFrame, hardware: dict[str, str], study: str) -> Part | None:
    if rows.empty:
        return None
    steps = in_order(rows[(rows["mode"] == "step") & (rows.execution == BASE[1])])
    columns = [
        DEVICE, MODEL, *WAY, WORK[1],
        Column(name="batch_size", title="at batch", kind="count"),
        Column(name="needed_bytes", title="predicted to need", kind="bytes"),
        Column(name="limit_bytes", title="of", kind="bytes", axis=True),
        Column(name="fits", title="fits"),
        Column(name="largest_batch", title="largest batch", kind="count"),
        Column(name="largest_batch_checkpointed", title="with checkpointing", kind="count"),
        Column(name="largest_context", title="largest context at that batch", kind="count"),
        Column(name="ran_batch", title="largest that ran", kind="count"),
        Column(name="failed_batch", title="smallest that did not fit", kind="count"),
        Column(name="checked", title="the prediction"),
        RECORD,
    ]  # fmt: skip
    sentences = [sentence for device, group in steps.groupby("device", sort=False)
                 for sentence in _fitting(group, hardware.get(device, device))]  # fmt: skip
    return Part(
        title="What fits, and what would", sentences=sentences, figures=[],
        tables=shown(steps, columns, study, "Whole steps, by prediction, and as far as cells checked it", "room",
                     most=len(steps)),
    )  # fmt: skip


def _fitting(rows: pd.DataFrame, device: str) -> Iterator[str]:
    limit = quantity(float(rows.limit_bytes.iloc[0]), "bytes")
    out = rows[~rows.fits.astype(bool)]
    if out.empty:
        yield f"All of {plural(len(rows), 'whole step')} fit into the {limit} that {device} has for tensors."
    for row in out.itertuples():
        ways = [
            f"a batch of {count(row.largest_batch)}" if row.largest_batch else "",
            f"a context of {count(row.largest_context)}" if row.largest_context else "",
            f"checkpointing, up to a batch of {count(row.largest_batch_checkpointed)}"
            if row.largest_batch_checkpointed >= row.batch_size
            else "",
        ]
        better = rows[
            (rows.model == row.model) & (rows.sequence_length == row.sequence_length) & rows.fits.astype(bool)
        ]
        ways += [f"{other.precision}" for other in better.itertuples()]
        would = " or ".join(way for way in ways if way) or "nothing of these"
        yield (
            f"On {device} a step of `{row.model}` in {row.precision} at {count(row.batch_size)} × "
            f"{count(row.sequence_length)} does not fit: {quantity(row.needed_bytes, 'bytes')} of {limit}. By "
            f"prediction this would: {would}."
        )
    checked = rows.checked.value_counts()
    judged = len(rows) - int(checked.get(OPEN, 0))
    yield (
        f"Cells near the border judge {judged:,} of these {len(rows):,} predictions: of {checked.get(HOLDS, 0):,} both "
        f"sides agree, of {checked.get(HALF, 0):,} the one side that was tried, and "
        f"{plural(checked.get(WRONG, 0), 'is', 'are')} refuted."
        if judged
        else "No cell lies near enough to the border to judge these predictions."
    )


def _isolation(rows: pd.DataFrame, hardware: dict[str, str], study: str) -> Part | None:
    if rows.empty:
        return None
    columns = [
        DEVICE,
        Column(name="place", title="place", kind="count"),
        Column(name="cell", title="cell"),
        Column(name="together_s", title="in one process", kind="s", measured=True),
        _interval("together_s", "together_low_s", "together_high_s", "s"),
        Column(name="alone_s", title="in its own", kind="s", measured=True),
        _interval("alone_s", "alone_low_s", "alone_high_s", "s"),
        Column(name="time_ratio", title="one process over own", kind="ratio", measured=True),
        _interval("time_ratio", "time_ratio_low", "time_ratio_high", ""),
        Column(name="verdict", title="in one process it is", measured=True),
        Column(name="together_first_s", title="first step in one process", kind="s", measured=True),
        Column(name="alone_first_s", title="in its own", kind="s", measured=True),
        Column(name="together_peak_allocated_bytes", title="peak allocated in one", kind="bytes", measured=True),
        Column(name="alone_peak_allocated_bytes", title="in its own", kind="bytes", measured=True),
        Column(name="together_peak_process_bytes", title="peak of process, one", kind="bytes", measured=True),
        Column(name="alone_peak_process_bytes", title="own", kind="bytes", measured=True),
        RECORD,
    ]  # fmt: skip
    sentences = [
        "The same cells were measured one after another in one process, caches emptied between them, and each in a "
        "process of its own."
    ]
    for device, group in rows.groupby("device", sort=False):
        where = hardware.get(device, device)
        for row in group[group.time_ratio.notna()].itertuples():
            sentences.append(
                f"On {where} `{row.cell}`, number {row.place:,} in its process, took {times(row.time_ratio)} "
                f"({span(row.time_ratio_low, row.time_ratio_high)}) the time that it takes alone"
                f"{' (undecided)' if row.verdict == 'undecided' else ''}{_memory(row)}; its first step took "
                f"{quantity(row.together_first_s, 's')} instead of {quantity(row.alone_first_s, 's')}."
            )
    return Part(
        title="One process for all, or one for each", sentences=sentences, figures=[],
        tables=shown(rows, columns, study, "Isolation, cell by cell, in the order of the one process", "isolation"),
    )  # fmt: skip


def _interval(name: str, low: str, high: str, kind: str) -> Column:
    return Column(name=name, title="interval", kind=kind, low=low, high=high, measured=True)


def _memory(row: object) -> str:
    """How much more memory a cell had in company, by the first quantity that was measured on both sides."""
    for name, words in (("peak_allocated_bytes", "allocated"), ("peak_process_bytes", "of the process")):
        together, alone = getattr(row, f"together_{name}"), getattr(row, f"alone_{name}")
        if not is_missing(together) and not is_missing(alone) and alone:
            return f" and {times(together / alone)} the peak memory {words}"
    return ""
