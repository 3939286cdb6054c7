"""The report's part on memory over time: what is there at the peaks of passes, in which precision, as predicted."""

import pandas as pd

from workflow_scripts.lib import csv_tables
from workflow_scripts.lib.memory_phases import PHASES
from workflow_scripts.lib.page import Column
from workflow_scripts.lib.parts import Part, shown
from workflow_scripts.lib.pass_memory_table import KINDS, PASS_COLUMNS, PASS_KEYS, bytes_of
from workflow_scripts.lib.quantities import count, listing, percent, plural, quantity

MODES = {"forward": "a forward pass", "forward_backward": "forward and backward", "step": "a whole step"}
SHOWN_BLOCKS = 8  # of each pass
AXES = [
    Column(name="device", title="device", axis=True),
    Column(name="probe", title="probe", axis=True),
    Column(name="model", title="model", axis=True),
    Column(name="batch_size", title="batch", kind="count", axis=True),
    Column(name="sequence_length", title="context", kind="count", axis=True),
    Column(name="checkpointing", title="checkpointing", axis=True),
    Column(name="mode", title="pass", axis=True),
    Column(name="precision", title="precision", axis=True),
]
RECORD = Column(name="record", title="from", kind="record")
PASSES = [
    *AXES,
    Column(name="peak_bytes", title="peak", kind="bytes", measured=True),
    Column(name="predicted_peak_bytes", title="predicted", kind="bytes", measured=True),
    Column(name="counted_peak_bytes", title="by the allocator's counter", kind="bytes", measured=True),
    Column(name="peak_phase", title="in", measured=True),
    *(Column(name=bytes_of(kind), title=kind, kind="bytes", measured=True) for kind in KINDS),
    Column(name="unnamed_bytes", title="of it without a name", kind="bytes", measured=True),
    Column(name="n_blocks", title="blocks", kind="count", measured=True),
    RECORD,
]
BY_PHASE = [
    *AXES,
    *(
        column
        for phase in PHASES
        for column in (
            Column(name=f"{phase}_peak_bytes", title=phase, kind="bytes", measured=True),
            Column(name=f"predicted_{phase}_bytes", title="predicted", kind="bytes", measured=True),
        )
    ),
    RECORD,
]
BLOCKS = [
    *AXES,
    Column(name="category", title="kind"),
    Column(name="what", title="what"),
    Column(name="layers", title="layers"),
    Column(name="arithmetic", title="one block"),
    Column(name="n_blocks", title="blocks", kind="count"),
    Column(name="sum_bytes", title="together", kind="bytes"),
    Column(name="peak_share", title="of the peak", kind="percent"),
    RECORD,
]


def part(tables: dict[str, pd.DataFrame], study: str) -> Part | None:
    """Peaks beside their prediction, what they consist of, and their largest blocks; None where nothing was traced."""
    passes, blocks = tables["memory_passes"], tables["memory_blocks"]
    if passes.empty:
        return None
    passes = csv_tables.with_columns(passes, PASS_COLUMNS)
    top = blocks.groupby(PASS_KEYS, sort=False, dropna=False).head(SHOWN_BLOCKS) if len(blocks) else blocks
    if len(top):
        top = top[top.sequence_length == top.groupby(["device", "probe"]).sequence_length.transform("min")]
    named = (
        top.assign(layers=top.layers.fillna("none"), arithmetic=top.arithmetic.fillna("unknown")) if len(top) else top
    )
    return Part(
        title="Memory over the course of a pass",
        sentences=sentences(passes, blocks),
        figures=[("memory_timeline", "Memory over time")],
        tables=[
            *shown(passes, PASSES, study, "Peaks of passes, and what they consist of", "memory_passes"),
            *shown(passes[passes["mode"] == "step"], BY_PHASE, study, "Peaks of a step's phases", "memory_passes"),
            *shown(named, BLOCKS, study, "Largest blocks at the peaks, shortest context", "memory_blocks"),
        ],
    )


def sentences(passes: pd.DataFrame, blocks: pd.DataFrame) -> list[str]:
    """What precision saves, what the peak consists of, its largest block, and how far all of this can be trusted."""
    told = []
    ok = passes[passes.status == "ok"]
    for (device, probe), group in ok.groupby(["device", "probe"], sort=False):
        told += [" ".join(_precisions(device, mode, rows)) for mode, rows in group.groupby("mode", sort=False)]
        largest = group[group["mode"] == "step"] if (group["mode"] == "step").any() else group
        first = largest.sort_values("sequence_length", kind="stable").iloc[0]
        own = blocks[(blocks.device == device) & (blocks.probe == probe)] if len(blocks) else blocks
        told.append(_contents(first) + _largest(first, own))
    return told + _trust(ok)


def _precisions(device: str, mode: str, rows: pd.DataFrame) -> list[str]:
    """The shortest context, and the longest beside it."""
    told = []
    lengths = rows.sequence_length.drop_duplicates().sort_values()
    for length in lengths.iloc[[0, -1]] if len(lengths) > 1 else lengths:
        here = rows[rows.sequence_length == length]
        first, base = here.iloc[0], here[here.precision == "fp32"].peak_bytes
        parts = []
        for row in here.itertuples():
            saved = 1 - row.peak_bytes / base.iloc[0] if len(base) and row.precision != "fp32" else None
            told_of = f" ({percent(abs(saved))} {'less' if saved > 0 else 'more'})" if saved else ""
            parts.append(f"{quantity(row.peak_bytes, 'bytes')} in {row.precision}{told_of}")
        told.append(
            f"On {device} {MODES[mode]} of `{first.model}` over {count(first.batch_size)} × {count(length)} tokens "
            f"takes {listing(parts)}."
        )
    return told


def _contents(row: pd.Series) -> str:
    shares = {kind: row[bytes_of(kind)] / row.peak_bytes for kind in KINDS}
    order = sorted((kind for kind in shares if shares[kind]), key=lambda kind: -shares[kind])
    return (
        f"The {row.precision} peak of {MODES[row['mode']]} over {count(row.sequence_length)} tokens on {row.device} "
        f"falls into {row.peak_phase} and consists of {listing(f'{kind} {percent(shares[kind])}' for kind in order)}."
    )


def _largest(row: pd.Series, blocks: pd.DataFrame) -> str:
    here = blocks
    for key in ("precision", "sequence_length", "mode", "checkpointing"):
        here = here[here[key] == row[key]] if len(here) else here
    named = here[here.arithmetic.notna()] if len(here) else here
    if named.empty:
        return ""
    one = named.loc[named.block_bytes.idxmax()]
    told = f" Its largest block with a name belongs to {one.category}: `{one.what}`, {one.arithmetic}."
    many = named.loc[named.sum_bytes.idxmax()]
    if many.n_blocks > 1:
        each = "of these" if many.name == one.name else f"times {many.arithmetic}"
        told += (
            f" Of all blocks that are alike, those of `{many.what}` take most: {count(many.n_blocks)} {each}, together "
            f"{quantity(many.sum_bytes, 'bytes')}."
        )
    return told


def _trust(ok: pd.DataFrame) -> list[str]:
    if ok.empty:
        return []
    errors = pd.concat(
        [(ok[f"predicted_{phase}_bytes"] / ok[f"{phase}_peak_bytes"] - 1).abs().dropna() for phase in PHASES]
    )
    watching = (ok.peak_bytes - ok.unwatched_peak_bytes).abs().max()
    changed = f"changed its peak by up to {quantity(watching, 'bytes')}" if watching else "did not change its peak"
    told = (
        f"Predicted and traced peaks of {plural(len(errors), 'phase')} differ by {percent(errors.median())} in the "
        f"median and {percent(errors.max())} at worst. Watching a pass {changed}, and "
        f"at most {percent((ok.unnamed_bytes / ok.peak_bytes).max())} of a peak "
        "belongs to no tensor that was seen."
    )
    counted = ok[ok.counted_peak_bytes.notna()]
    if len(counted):
        off = (counted.counted_peak_bytes / counted.peak_bytes - 1).max()
        told += f" The allocator, which rounds blocks up, counts up to {percent(off)} more."
    kept = ok[ok.snapshot.notna()] if "snapshot" in ok else ok.head(0)
    if len(kept):
        told += " A snapshot of each pass lies in a folder beside its record, for https://pytorch.org/memory_viz."
    return [told]
