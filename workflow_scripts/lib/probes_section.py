"""The report's part on probes, warm-up and execution: sentences, figures and tables of what the study asked for."""

import pandas as pd

from workflow_scripts.lib import operator_roofline, pass_memory_section, probe_sentences
from workflow_scripts.lib.attention_table import borders
from workflow_scripts.lib.page import Column
from workflow_scripts.lib.parts import Part, shown

NAMES = (
    "operator_probes",
    "operator_counts",
    "clocks",
    "memory_passes",
    "memory_blocks",
    "attention",
    "accumulation",
    "autocast",
    "warm_up",
    "executions",
    "ceilings",
)
SHOWN_OPERATORS = 8  # of each pass
DEVICE = Column(name="device", title="device", axis=True)
PROBE = Column(name="probe", title="probe", axis=True)
MODEL = Column(name="model", title="model", axis=True)
RECORD = Column(name="record", title="from", kind="record")


def section(tables: dict[str, pd.DataFrame], study: str) -> list[Part]:
    """The parts that there is something to say in, in the order of the page.

    Args:
        tables: the probes' tables by name; any may have no rows.
        study: its name, for links to records.
    """
    makers = (
        _operators,
        _clocks,
        pass_memory_section.part,
        _attention,
        _accumulation,
        _autocast,
        _warm_up,
        _executions,
    )
    given = {name: tables.get(name, pd.DataFrame()) for name in NAMES}
    return [part for make in makers if (part := make(given, study)) is not None]


def _operators(tables: dict[str, pd.DataFrame], study: str) -> Part | None:
    rows, counts = tables["operator_probes"], tables["operator_counts"]
    if rows.empty:
        return None
    timed = rows[(rows.status == "ok") & rows.share.notna()]
    keys = ["device", "probe", "mode"]
    kinds = operator_roofline.kinds(rows, tables["ceilings"])
    top = timed.sort_values("share", ascending=False).groupby(keys, sort=False).head(SHOWN_OPERATORS)
    top = top.sort_values([*keys, "share"], ascending=[True, True, True, False])
    mode = Column(name="mode", title="pass", axis=True)
    columns = [
        Column(name="calls_per_step", title="calls", kind="number", measured=True),
        Column(name="self_time_s", title="own time", kind="s", measured=True),
        Column(name="share", title="share of the pass", kind="percent", measured=True),
        Column(name="flops", title="FLOPs", kind="FLOPs", measured=True),
        Column(name="moved_bytes", title="moves at least", kind="bytes", measured=True),
    ]
    roofline = [
        Column(name="flop_per_byte", title="FLOPs for a byte", kind="number", measured=True),
        Column(name="flop_per_s", title="FLOP/s", kind="FLOP/s", measured=True),
        Column(name="bytes_per_s", title="bytes/s", kind="bytes/s", measured=True),
        Column(name="of_roof", title="of what the device allows", kind="percent", measured=True),
    ]
    work = Column(name="category", title="work")
    counted = [
        DEVICE, PROBE, mode,
        Column(name="phase", title="phase"),
        Column(name="what", title="what"),
        Column(name="expected", title="expected", kind="count"),
        Column(name="found", title="found", kind="number"),
        Column(name="agrees", title="agree"),
    ]  # fmt: skip
    operator = [Column(name="operator", title="operator"), Column(name="phase", title="phase"), work]
    return Part(
        title="Operators of each pass",
        sentences=probe_sentences.operators(rows, counts),
        figures=[("operator_modes", "Kinds of work"), ("operator_roofline", "Kinds of work on the roofline")],
        tables=[
            *shown(kinds, [DEVICE, PROBE, mode, work, *columns, *roofline], study, "Work in each pass",
                   "operator_probes"),
            *shown(top, [DEVICE, PROBE, mode, *operator, *columns], study, "Largest operators of each pass",
                    "operator_probes"),
            *shown(counts, counted, study, "Calls that follow from the number of layers", "operator_counts"),
        ],
    )  # fmt: skip


def _clocks(tables: dict[str, pd.DataFrame], study: str) -> Part | None:
    rows = tables["clocks"]
    if rows.empty:
        return None
    columns = [
        DEVICE, MODEL,
        Column(name="mode", title="pass", axis=True),
        Column(name="sequence_length", title="context", kind="count"),
        Column(name="host_s", title="host", kind="s", measured=True),
        Column(name="device_s", title="device busy", kind="s", measured=True),
        Column(name="wall_s", title="wall", kind="s", measured=True),
        Column(name="host_share", title="host over wall", kind="percent", measured=True),
        Column(name="device_share", title="device over wall", kind="percent", measured=True),
        Column(name="n_kernels", title="kernels", kind="count", measured=True),
        Column(name="nsys_s", title="busy by Nsight Systems", kind="s", measured=True),
        Column(name="bound", title="waits for", measured=True),
        RECORD,
    ]  # fmt: skip
    return Part(
        title="Host, device and wall",
        sentences=probe_sentences.clocks(rows),
        figures=[("clocks", "Three clocks")],
        tables=shown(rows, columns, study, "One step under several clocks", "clocks"),
    )


def _attention(tables: dict[str, pd.DataFrame], study: str) -> Part | None:
    rows = tables["attention"]
    if rows.empty:
        return None
    ends = borders(rows)
    ways = [
        DEVICE,
        Column(name="backend", title="backend"),
        Column(name="compiled", title="execution", axis=True),
        Column(name="precision", title="precision", axis=True),
        Column(name="head_size", title="head size", kind="count", axis=True),
    ]
    measured = [
        *ways,
        Column(name="sequence_length", title="context", kind="count"),
        Column(name="forward_s", title="forward", kind="s", measured=True),
        Column(name="backward_s", title="backward", kind="s", measured=True),
        Column(name="forward_ratio", title="over the ideal", kind="ratio", measured=True),
        Column(name="backward_ratio", title="backward, over the ideal", kind="ratio", measured=True),
        Column(name="before_backward_bytes", title="before backward", kind="bytes", measured=True),
        Column(name="peak_bytes", title="peak", kind="bytes", measured=True),
        Column(name="n_passes", title="passes", kind="count", measured=True, axis=True),
        RECORD,
    ]
    ended = [
        *ways,
        Column(name="longest", title="longest that ran", kind="count"),
        Column(name="peak_bytes", title="its peak", kind="bytes"),
        Column(name="score_matrices", title="matrices of scores", kind="number"),
        Column(name="ended_at", title="ends at", kind="count"),
        Column(name="ended_by", title="because", kind="status"),
        Column(name="needed_bytes", title="needed there, predicted", kind="bytes"),
        Column(name="capacity_bytes", title="the device has", kind="bytes", axis=True),
    ]
    ran = rows[rows.status == "ok"].sort_values("sequence_length", ascending=False, kind="stable")
    return Part(
        title="Attention alone",
        sentences=probe_sentences.attention(rows, ends),
        figures=[("attention", "Time of attention"), ("attention_memory", "Memory of attention")],
        tables=[
            *shown(ends, ended, study, "Where each backend ends", "attention"),
            *shown(ran, measured, study, "Attention alone, longest contexts first", "attention"),
        ],
    )


def _accumulation(tables: dict[str, pd.DataFrame], study: str) -> Part | None:
    rows = tables["accumulation"]
    if rows.empty:
        return None
    columns = [
        DEVICE,
        Column(name="sum_format", title="sum"),
        Column(name="term_format", title="terms"),
        Column(name="upcast", title="converted first"),
        Column(name="terms", title="how many", kind="count", axis=True),
        Column(name="value", title="value", kind="loss", measured=True),
        Column(name="error", title="error", kind="number", measured=True),
        Column(name="input_error", title="of it from rounding the constant", kind="number", measured=True),
        Column(name="sum_error", title="of it from rounding sums", kind="number", measured=True),
        RECORD,
    ]
    last = rows[rows.terms == rows.terms.max()] if rows.terms.notna().any() else rows
    return Part(
        title="Adding up in low precision",
        sentences=probe_sentences.accumulation(rows),
        figures=[("accumulation", "Error of a sum")],
        tables=shown(last, columns, study, "Sums of a constant", "accumulation"),
    )


def _autocast(tables: dict[str, pd.DataFrame], study: str) -> Part | None:
    rows = tables["autocast"]
    if rows.empty:
        return None
    points = ("parameters", "first_linear", "normalisation", "residual_stream", "logits", "loss", "gradients")
    columns = [
        DEVICE, MODEL,
        Column(name="precision", title="precision"),
        *(Column(name=point, title=point.replace("_", " "), measured=True) for point in points),
        Column(name="products", title="float32 products", measured=True),
        Column(name="first_gradient_distance", title="first gradient off by", kind="percent", measured=True),
        Column(name="largest_gradient_distance", title="at most", kind="percent", measured=True),
        Column(name="largest_loss_difference", title="loss off by at most", kind="number", measured=True),
        Column(name="n_steps", title="steps", kind="count", measured=True, axis=True),
        RECORD,
    ]  # fmt: skip
    return Part(
        title="What a precision does",
        sentences=probe_sentences.autocast(rows),
        figures=[("precision_drift", "Distance from fp32")],
        tables=shown(rows, columns, study, "Data types as observed, and distance from fp32", "autocast"),
    )


def _warm_up(tables: dict[str, pd.DataFrame], study: str) -> Part | None:
    rows = tables["warm_up"]
    if rows.empty:
        return None
    columns = [
        DEVICE,
        Column(name="cell", title="cell"),
        Column(name="n_discarded", title="discarded", kind="count"),
        Column(name="mean_s", title="mean of ten", kind="s"),
        Column(name="std_s", title="standard deviation", kind="s"),
        Column(name="cv", title="coefficient of variation", kind="percent"),
        Column(name="median_s", title="median of ten", kind="s"),
        Column(name="steady_s", title="steady", kind="s"),
        Column(name="mean_ratio", title="mean over steady", kind="ratio"),
        Column(name="n_cold", title="cold steps", kind="count"),
        RECORD,
    ]
    worst_first = rows.groupby(["device", "cell"])["mean_ratio"].transform("max")
    order = rows.assign(worst=worst_first).sort_values(["worst", "device", "cell"], ascending=[False, True, True],
                                                       kind="stable")  # fmt: skip
    return Part(
        title="What warm-up is worth",
        sentences=probe_sentences.warm_up(rows),
        figures=[("warm_up", "Mean after discarded steps")],
        tables=shown(order, columns, study, "Ten steps after 0, 1, 2 and 5 discarded ones", "warm_up"),
    )


def _executions(tables: dict[str, pd.DataFrame], study: str) -> Part | None:
    rows = tables["executions"]
    if rows.empty:
        return None
    columns = [
        DEVICE,
        Column(name="cell", title="cell"),
        Column(name="eager_step_time_s", title="eager", kind="s"),
        Column(name="step_time_s", title="step time", kind="s"),
        Column(name="speedup", title="as fast as eager", kind="ratio"),
        Column(name="compile_s", title="compile", kind="s"),
        Column(name="start_s", title="start in all", kind="s"),
        Column(name="pays_after_steps", title="pays after steps", kind="count"),
        Column(name="pays_after_s", title="that is after", kind="s"),
        RECORD,
    ]
    return Part(
        title="When compiling pays",
        sentences=probe_sentences.executions(rows),
        figures=[],
        tables=shown(rows, columns, study, "Compiled and graphed beside eager", "executions"),
    )
