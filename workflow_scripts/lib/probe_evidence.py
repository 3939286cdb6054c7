"""What probes saw, in the form in which claims ask for it; nothing where no probe looked."""

import pandas as pd

from workflow_scripts.lib.evidence import Evidence


def timed_operators(evidence: Evidence) -> pd.DataFrame:
    """The operators of all passes that were profiled to their end."""
    rows = evidence["operator_probes"]
    return rows[(rows.status == "ok") & rows.share.notna()] if len(rows) else rows


def steps(evidence: Evidence) -> pd.DataFrame:
    """Those of whole steps."""
    rows = timed_operators(evidence)
    return rows[rows["mode"] == "step"] if len(rows) else rows


def kinds_of_phases(evidence: Evidence, phases: tuple[str, ...]) -> dict[tuple[str, str, str], pd.Series]:
    """Time of each kind of work as a share of its phase of whole steps, by device, probe and phase."""
    rows = steps(evidence)
    rows = rows[rows.phase.isin(phases)] if len(rows) else rows
    groups = rows.groupby(["device", "probe", "phase"], sort=False) if len(rows) else ()
    return {keys: group.groupby("category").self_time_s.sum() / group.self_time_s.sum() for keys, group in groups}


def spelled_out(evidence: Evidence) -> pd.DataFrame | None:
    """Products and softmax of attention in a forward pass, by device and probe, where both were seen apart."""
    rows = timed_operators(evidence)
    rows = rows[(rows["mode"] == "forward") & (rows.phase == "forward")] if len(rows) else rows
    found = []
    for (device, _), group in rows.groupby(["device", "probe"], sort=False) if len(rows) else ():
        products = group[group.operator.isin(["aten::bmm", "aten::baddbmm"])]
        softmax = group[group.operator == "aten::_softmax"]
        if len(products) and len(softmax):
            found.append(
                {"device": device, "product_s": products.self_time_s.sum(), "softmax_s": softmax.self_time_s.sum(),
                 "product_flops": products.flops.sum(min_count=1), "softmax_flops": softmax.flops.sum(min_count=1)}
            )  # fmt: skip
    return pd.DataFrame(found) if found else None


def errors_of_sums(evidence: Evidence) -> pd.Series | None:
    """Errors of the whole sums, by format of the sum, format of its terms, and whether they were converted first."""
    rows = evidence["accumulation"]
    rows = rows[rows.error.notna()] if len(rows) else rows
    if rows.empty:
        return None
    whole = rows[rows.terms == rows.terms.max()].drop_duplicates(["sum_format", "term_format", "upcast"])
    keys = [(row.sum_format, row.term_format, str(row.upcast) == "True") for row in whole.itertuples()]
    return pd.Series(list(whole.error), index=pd.Index(keys, tupleize_cols=False))


def spelled_out_alone(evidence: Evidence) -> pd.DataFrame:
    """Attention alone, as products and a softmax in fp32, eager: what the document measured."""
    rows = evidence["attention"]
    return (
        rows[(rows.backend == "math") & (rows.precision == "fp32") & (rows.compiled == "eager")] if len(rows) else rows
    )
