"""The sentences of the report on probes, warm-up and execution: each from the rows that it tells of."""

from typing import Any

import numpy as np
import pandas as pd

from workflow_scripts.lib.probe_tables import BUSY
from workflow_scripts.lib.quantities import count, digits, is_missing, listing, percent, plural, quantity, times

NEGLIGIBLE, CONSIDERABLE = 0.02, 0.2  # of a steady time: below is no more than repeats differ by; above is no detail
EXPLAINS = 1.0  # a border is explained where what is needed exceeds what the device has
MODE_WORDS = {"forward": "forward", "forward_backward": "forward and backward", "step": "a whole step",
              "optimizer": "the update"}  # fmt: skip


def attention(rows: pd.DataFrame, borders: pd.DataFrame) -> list[str]:
    """Which backend is fastest at the longest context that several reach, how near the ideal, and where each ends."""
    told = []
    ran = rows[rows.status == "ok"]
    for (device, precision), group in ran.groupby(["device", "precision"], sort=False):
        group = group.assign(both_s=group.forward_s + group.backward_s)
        at = group.groupby(["head_size", "sequence_length"])["backend"].nunique()
        at = at[at > 1]
        if at.empty:
            continue
        head_size, length = max(at.index, key=lambda place: (place[1], place[0]))
        here = group[(group.head_size == head_size) & (group.sequence_length == length)].sort_values("both_s")
        fast, slow = here.iloc[0], here.iloc[-1]
        told.append(
            f"On {device} in {precision}, at {count(length)} tokens and head size {count(head_size)}, {_way(fast)} "
            f"takes {quantity(fast.forward_s, 's')} forward and {quantity(fast.backward_s, 's')} backward; "
            f"{_way(slow)} takes {times(slow.both_s / fast.both_s)} as long." + _nearness(fast)
        )
    told += [_border(row) for row in borders.to_dict("records") if row["ended_by"] in ("oom", "predicted_oom")][:6]
    absent = borders[borders.ended_by == "unavailable"] if len(borders) else borders
    for (device, precision), group in absent.groupby(["device", "precision"], sort=False) if len(absent) else ():
        told.append(f"Not available on {device} in {precision}: {listing(sorted(set(group.backend)))}.")
    return told


def _way(row: Any) -> str:
    return f"`{row.backend}`" + (" compiled" if row.compiled == "compiled" else "")


def _nearness(row: Any) -> str:
    if is_missing(row.forward_ratio):
        return ""
    return (
        f" The best rates of the device would allow {quantity(row.ideal_forward_s, 's')} and "
        f"{quantity(row.ideal_backward_s, 's')}, bound by {row.ideal_bound}: it takes {times(row.forward_ratio)} and "
        f"{times(row.backward_ratio)} that."
    )


def _border(row: dict[str, Any]) -> str:
    way = f"`{row['backend']}`" + (" compiled" if row["compiled"] == "compiled" else "")
    head = f"On {row['device']} in {row['precision']} with head size {count(row['head_size'])}, {way} ends "
    reached = "before its first context" if is_missing(row["longest"]) else f"after {count(row['longest'])} tokens"
    kept = (
        f", where it holds {digits(row['score_matrices'])} matrices of scores as its backward begins"
        if not is_missing(row["score_matrices"])
        else ""
    )
    if is_missing(row["capacity_bytes"]):
        return f"{head}{reached}{kept}."
    share = row["needed_bytes"] / row["capacity_bytes"]
    verdict = "which explains it" if share > EXPLAINS else "so that what was free at that moment decided"
    return (
        f"{head}{reached}{kept}: {count(row['ended_at'])} tokens need {quantity(row['needed_bytes'], 'bytes')} by what "
        f"shorter ones took, and the device has {quantity(row['capacity_bytes'], 'bytes')}, {verdict}."
    )


def accumulation(rows: pd.DataFrame) -> list[str]:
    """What each way makes of the sum, and why."""
    told = []
    for device, group in rows[rows.status == "ok"].groupby("device", sort=False):
        last = group[group.terms == group.terms.max()]
        first = last.iloc[0]
        told.append(
            f"{count(first.terms)} times {first.exact / first.terms:g} is {first.exact:g}; on {device} the sums are "
            + listing(f"{row.value:.6g} ({_sum(row)})" for row in last.itertuples() if str(row.upcast) != "True")
            + "."
        )
        low = last[(last.sum_format == last.term_format) & (last.sum_format != "fp32")]
        for row in low.itertuples():
            told.append(
                f"Of the error of the {row.sum_format} sum, {digits(abs(row.error))}, rounding the constant once "
                f"makes {digits(abs(row.input_error))} and rounding the sum at each addition "
                f"{digits(abs(row.sum_error))}."
            )
        mixed = last[(last.sum_format == "fp32") & (last.term_format != "fp32")]
        for name, pair in mixed.groupby("term_format", sort=False):
            by = {str(row.upcast): row for row in pair.itertuples()}
            if len(by) == 2:
                same = by["True"].value == by["False"].value
                told.append(
                    f"With {name} terms in an fp32 sum, converting each term before it is added "
                    f"{'changes nothing' if same else 'changes the sum'}: "
                    f"{percent(_share(by['True'].input_error, by['True'].error))} of the error is the constant's own "
                    "rounding."
                )
    return told


def _sum(row: Any) -> str:
    return f"{row.sum_format}" if row.sum_format == row.term_format else f"{row.sum_format} of {row.term_format} terms"


def _share(part: float, whole: float) -> float | None:
    return abs(part / whole) if whole else None


def autocast(rows: pd.DataFrame) -> list[str]:
    """What is kept in which format, and how far the precision leads from fp32."""
    told = []
    for row in rows[(rows.status == "ok") & (rows.precision != "fp32")].itertuples():
        points = {"parameters": row.parameters, "the first linear map's output": row.first_linear,
                  "normalisation's": row.normalisation, "logits": row.logits, "loss": row.loss,
                  "gradients": row.gradients}  # fmt: skip
        low = [name for name, dtype in points.items() if dtype not in ("float32", None)]
        high = [name for name, dtype in points.items() if dtype == "float32"]
        kept = f"{listing(low)} {'is' if len(low) == 1 else 'are'} in low precision, " if low else "all is float32: "
        told.append(
            f"In {row.precision} on {row.device}, {kept}{listing(high)} in float32. From equal weights the first "
            f"gradient is {percent(row.first_gradient_distance)} from fp32's; over {plural(int(row.n_steps), 'step')} "
            f"the losses differ by at most {quantity(row.largest_loss_difference, 'nats per token')}."
        )
    return told


def clocks(rows: pd.DataFrame) -> list[str]:
    """Whether the step waits for the host, told from the three clocks."""
    told = []
    for (device, mode), group in rows[rows.status == "ok"].groupby(["device", "mode"], sort=False):
        group = group.sort_values("sequence_length")
        work = MODE_WORDS.get(str(mode), str(mode))
        if (group.bound == "one clock").all():
            worst = float((1 - group.host_share).max())
            told.append(
                f"On {device} the host's clock and the wall's coincide for {work}, within {percent(max(worst, 0.0))}: "
                "the host computes itself, so there is no queue, and nothing is launch-bound."
            )
            continue
        launch, device_bound = (group[group.bound == bound] for bound in ("launch", "device"))
        if len(launch):
            last = launch.iloc[-1]
            told.append(
                f"On {device} {work} is launch-bound up to {count(last.sequence_length)} tokens: there the device is "
                f"busy for {percent(last.device_share)} of {quantity(last.wall_s, 's')}, while the host launches for "
                f"{percent(last.host_share)} of it."
            )
        if len(device_bound):
            first = device_bound.iloc[0]
            told.append(
                f"From {count(first.sequence_length)} tokens on {work} waits for the device, which is busy for "
                f"{percent(first.device_share)} of {quantity(first.wall_s, 's')}; the host is done after "
                f"{quantity(first.host_s, 's')}, so what the wall shows more is the work and not the synchronisation."
            )
        if not len(launch) and not len(device_bound):
            told.append(f"On {device} neither host nor device is busy for {percent(BUSY)} of the time of {work}.")
    return told + _nsight(rows)


def _nsight(rows: pd.DataFrame) -> list[str]:
    """Whether Nsight Systems saw the device's time, too, and how far both timelines are from each other."""
    told = []
    asked = rows[rows.nsys.notna()] if "nsys" in rows else rows.head(0)
    for device, group in asked.groupby("device", sort=False):
        both = group[group.nsys_s.notna() & group.device_s.notna()]
        if both.empty:
            told.append(
                f"The device's time on {device} is from the profiler's timeline; Nsight Systems: {group.nsys.iloc[0]}."
            )
            continue
        off = (both.nsys_s / both.device_s - 1).abs()
        told.append(
            f"Nsight Systems saw {device} busy for as long as the profiler did, to within {percent(off.max())}."
        )
    return told


def operators(rows: pd.DataFrame, counts: pd.DataFrame) -> list[str]:
    """Where most of each pass goes, products against softmax, and whether counts follow from the layers."""
    told = []
    timed = rows[(rows.status == "ok") & rows.share.notna()]
    for (device, probe), group in timed.groupby(["device", "probe"], sort=False):
        parts = []
        for mode, own in group.groupby("mode", sort=False):
            kinds = own.groupby("category")["share"].sum().sort_values(ascending=False)
            first = next((kind for kind in kinds.index if not kind.startswith("idle")), None)
            idle = kinds[[kind for kind in kinds.index if kind.startswith("idle")]].sum()
            words = MODE_WORDS.get(str(mode), str(mode))
            parts.append(f"{percent(kinds[first])} of {words} is {first} and {percent(idle)} idle or untraced")
        told.append(f"`{probe}` on {device}: {listing(parts)}.")
        whole = group[group["mode"] == "step"] if (group["mode"] == "step").any() else group
        told += _attention_products(whole)
        sums = whole.groupby("category")[["self_time_s", "flops"]].sum()
        if {"softmax", "matrix product"} <= set(sums.index) and sums.loc["softmax", "flops"] > 0:
            product, softmax = sums.loc["matrix product"], sums.loc["softmax"]
            told.append(
                f"All matrix products take {quantity(product.self_time_s, 's')} for "
                f"{quantity(product.flops, 'FLOPs')} and the softmax of attention {quantity(softmax.self_time_s, 's')} "
                f"for {quantity(softmax.flops, 'FLOPs')}: {times(product.flops / softmax.flops)} the FLOPs in "
                f"{times(product.self_time_s / softmax.self_time_s)} the time."
            )
        own = counts[(counts.device == device) & (counts.probe == probe)] if len(counts) else counts
        if len(own):
            wrong = own[~own.agrees.astype(bool)]
            told.append(
                f"All {plural(len(own), 'count')} of operators follow from the number of layers."
                if wrong.empty
                else "Counts that do not follow from the number of layers: "
                + listing(
                    f"{row.what} in {row.phase} of {MODE_WORDS.get(row.mode, row.mode)}, {digits(row.found)} where "
                    f"{digits(row.expected)} are expected"
                    for row in wrong.itertuples()
                )
                + "."
            )
    return told


def _attention_products(rows: pd.DataFrame) -> list[str]:
    """Attention spelled out: its products, the only batched ones of a step, against its softmax."""
    products = rows[rows.operator.isin(["aten::bmm", "aten::baddbmm"])][["self_time_s", "flops"]].sum()
    softmax = rows[rows.category == "softmax"][["self_time_s", "flops"]].sum()
    if not (products.flops > 0 and softmax.flops > 0):
        return []
    return [
        f"Of attention alone, the products take {quantity(products.self_time_s, 's')} for "
        f"{quantity(products.flops, 'FLOPs')} and the softmax {quantity(softmax.self_time_s, 's')} for "
        f"{quantity(softmax.flops, 'FLOPs')}: {times(products.flops / softmax.flops)} the FLOPs in "
        f"{times(products.self_time_s / softmax.self_time_s)} the time."
    ]


def warm_up(rows: pd.DataFrame) -> list[str]:
    """What discarding steps is worth on each device, and for how many steps the start is felt."""
    told = []
    for device, group in rows.groupby("device", sort=False):
        parts = []
        for n, own in group.groupby("n_discarded", sort=True):
            excess = own.mean_ratio - 1
            parts.append(
                f"{percent(float(excess.median()))} ({percent(float(excess.max()))} in the worst cell) after {n}"
            )
        cells = group.drop_duplicates("cell")
        none = float(group[group.n_discarded == 0].mean_ratio.median() - 1)
        size = "no more than noise" if none < NEGLIGIBLE else "considerable" if none > CONSIDERABLE else "moderate"
        told.append(
            f"On {device} the mean of ten steps is above the steady median by {listing(parts)} discarded steps, in the "
            f"middle of {plural(len(cells), 'cell')}: without warm-up the error is {size}."
        )
        told.append(
            f"What is once only costs {quantity(float(cells.extra_s.median()), 's')} in the middle cell, and is over "
            f"after {plural(round(float(np.median(cells.n_cold))), 'step')}; the median of the same ten steps is "
            f"{percent(float(group[group.n_discarded == 0].median_ratio.median() - 1))} off."
        )
    return told


def executions(rows: pd.DataFrame) -> list[str]:
    """After how many steps compiling has paid for itself."""
    told = []
    for (device, execution), group in rows.groupby(["device", "execution"], sort=False):
        pays = group[group.pays_after_steps.notna()]
        never = len(group) - len(pays)
        if len(pays):
            first, last = pays.loc[pays.pays_after_steps.idxmin()], pays.loc[pays.pays_after_steps.idxmax()]
            span = count(first.pays_after_steps) if len(pays) == 1 else (
                f"{count(first.pays_after_steps)} to {count(last.pays_after_steps)}"
            )  # fmt: skip
            told.append(
                f"On {device}, {execution} cells are {times(float(pays.speedup.median()))} as fast as eager ones in "
                f"the middle of {plural(len(pays), 'cell')}; starting costs "
                f"{quantity(float(pays.start_s.median()), 's')}, which has paid for itself after {span} steps."
            )
        if never:
            cells = plural(never, f"{execution} cell")
            told.append(f"On {device}, {cells} no faster than eager: there the start never pays.")
    return told
