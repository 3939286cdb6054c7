"""What the study `cpu_optimizations` says of each claim of its document.

What a claim says of a loss is judged only by runs of the document's shape and length.
"""

import pandas as pd

from workflow_scripts.lib.evidence import CANNOT, DOES_NOT, HOLDS, Evidence, Judgement
from workflow_scripts.lib.experiments import BASELINE, OUTCOMES
from workflow_scripts.lib.own_experiments import (
    SHRUNK,
    UNTRAINED,
    Change,
    always,
    as_published,
    changes,
    no_more_than,
    together,
    told,
)
from workflow_scripts.lib.quantities import count, listing, percent, times

PUBLISHED = {"n_layer": 4, "n_embd": 128, "batch_size": 12, "n_steps": 2000}
OTHERS = ("sgd", "bf16", "half_batch", "accumulation_4")  # what the document's full precision is set beside
EQUAL = 0.10  # weights this close to a third each are called equal
FAR = 0.5  # a spread that is more by this share varies far more


def optimized(evidence: Evidence, outcome: str, level: str) -> list[Change]:
    """What an optimization changes, at each shape."""
    return changes(evidence, outcome, {"optimization": level}, {"optimization": BASELINE}, "shape")


def shapes(evidence: Evidence, outcome: str, one: str, other: str) -> list[Change]:
    """What one shape has over another, with each optimization."""
    return changes(evidence, outcome, {"shape": one}, {"shape": other}, "optimization")


def formats_have_the_same_loss(evidence: Evidence) -> Judgement:
    if not as_published(evidence, **PUBLISHED):
        return CANNOT, SHRUNK
    found = changes(evidence, "final_val_loss", {"optimization": "bf16"}, {"optimization": "fp16"}, "shape")
    verdict, why = no_more_than(found, OUTCOMES["final_val_loss"].margin)
    equal = sum(one.found.log_ratio == 0 for one in found)
    return verdict, f"{why}; {equal:,} of them equal to the last digit" if found else why


def full_precision_is_fastest(evidence: Evidence) -> Judgement:
    return always([change for level in OTHERS for change in optimized(evidence, "train_s", level)], 1)


def mixed_precision_is_slower(evidence: Evidence) -> Judgement:
    return always([change for level in ("bf16", "fp16") for change in optimized(evidence, "train_s", level)], 1)


def heads_beat_layers(evidence: Evidence) -> Judgement:
    cheaper = [change for outcome in ("train_s", "peak_bytes") for change in
               shapes(evidence, outcome, "heads_x2", "layers_x2")]  # fmt: skip
    if not as_published(evidence, **PUBLISHED):
        return together(always(cheaper, -1), (CANNOT, f"of loss nothing, since {SHRUNK}"))
    return always([*cheaper, *shapes(evidence, "final_val_loss", "heads_x2", "layers_x2")], -1)


def layers_cost_parameters(evidence: Evidence) -> Judgement:
    runs = evidence["runs"]
    counts = {}
    for level in ("heads_x2", "layers_x2"):
        rows = runs[runs.treatment == level] if len(runs) else runs
        counts[level] = None if rows.empty else float(rows.n_params.iloc[0])
    if None in counts.values():
        return CANNOT, UNTRAINED
    text = listing(f"`{level}` has {count(n)} parameters" for level, n in counts.items())
    return (HOLDS if counts["layers_x2"] < counts["heads_x2"] else DOES_NOT), text


def half_batch_raises_loss(evidence: Evidence) -> Judgement:
    if not as_published(evidence, **PUBLISHED):
        return CANNOT, SHRUNK
    return always(optimized(evidence, "final_val_loss", "half_batch"), 1)


def half_batch_takes_less_time(evidence: Evidence) -> Judgement:
    verdict, why = always(optimized(evidence, "train_s", "half_batch"), -1)
    per_token = optimized(evidence, "token_time_s", "half_batch")
    return verdict, f"{why}; but it sees half the tokens: {told(per_token)}" if per_token else why


def half_batch_scatters_far_more(evidence: Evidence) -> Judgement:
    found = optimized(evidence, "train_loss_noise", "half_batch")
    if not found:
        return CANNOT, UNTRAINED
    far = all(one.sign > 0 and one.share >= FAR for one in found)
    undecided = any(one.sign == 0 for one in found)
    return (HOLDS if far else CANNOT if undecided else DOES_NOT), (
        f"far is taken as {percent(FAR)} and more, and half the batch alone gives {percent(2**0.5 - 1)} by √2: "
        f"{told(found)}"
    )


def layers_take_vastly_more_memory(evidence: Evidence) -> Judgement:
    found = [change for other in ("heads_x2", "embeddings_x2") for change in
             shapes(evidence, "peak_bytes", "layers_x2", other)]  # fmt: skip
    verdict, why = always(found, 1)
    counted = evidence["allocations"]
    rows = counted[counted.treatment.isin(["heads_x2", "layers_x2", "embeddings_x2"])] if len(counted) else counted
    rows = rows[rows.allocations_ratio.notna()] if len(rows) else rows
    if len(rows):
        text = listing(
            f"{times(row.allocations_ratio)} the calls and {times(row.peak_ratio)} the bytes with `{row.treatment}`"
            for row in rows.itertuples()
        )
        why += f"; on the heap, against the baseline, {text}"
    return verdict, why


def rank_weighs_equally(evidence: Evidence) -> Judgement:
    ranks = evidence["ranks"]
    if ranks.empty:
        return CANNOT, UNTRAINED
    weights = ranks.groupby("device", sort=False)[["weight_loss", "weight_time", "weight_memory"]].first()
    text = "; ".join(
        f"on {row.Index} loss weighs {percent(row.weight_loss)}, time {percent(row.weight_time)}, memory "
        f"{percent(row.weight_memory)}"
        for row in weights.itertuples()
    )
    return (HOLDS if _equal(weights) else DOES_NOT), f"by how far each term reaches, {text}"


def _equal(weights: pd.DataFrame) -> bool:
    return bool(((weights - 1 / 3).abs() <= EQUAL).all(axis=None))


CHECKS = (
    formats_have_the_same_loss, full_precision_is_fastest, mixed_precision_is_slower, heads_beat_layers,
    layers_cost_parameters, half_batch_raises_loss, half_batch_takes_less_time, half_batch_scatters_far_more,
    layers_take_vastly_more_memory, rank_weighs_equally,
)  # fmt: skip
