"""What the study `attention_and_precision` says of each claim of its document."""

from workflow_scripts.lib.audit.claim_kinds import ADJECTIVES
from workflow_scripts.lib.evidence import CANNOT, DOES_NOT, HOLDS, Evidence, Judgement
from workflow_scripts.lib.judgements import after_discarding, extent
from workflow_scripts.lib.probe_evidence import (
    errors_of_sums,
    kinds_of_phases,
    spelled_out,
    spelled_out_alone,
    steps,
    timed_operators,
)
from workflow_scripts.lib.quantities import digits, listing, percent, plural, quantity, times

CARD_BYTES = 8e9
THREE_GB = 3e9
HUGE = 0.25  # a share of a step called huge
MUCH_MORE = 10  # times as many FLOPs, called much more
ALIKE = 0.05  # shares of the time this close, and kept matrices this far from a whole number, are called the same
EXACT_SUMS = 2  # times the error of another sum, up to which both are called equally accurate
NOT_RUN = ("large", "xl", "2.7b")  # what the document did not run
LAYER, LAYER_BYTES = "16 × 128 × 768 × 2 bytes", 0.75 * 2**20  # the document's arithmetic, and its result
OUTSIDE = "outside the blocks|head"
LONGEST = 4096  # tokens, the longest context that the document could run


def minor_increase_without_warm_up(evidence: Evidence) -> Judgement:
    limit = ADJECTIVES["minor"] / 100
    return after_discarding(evidence, (0,), lambda off: bool((off <= limit).all()))


def the_rest_cannot_be_run(evidence: Evidence) -> Judgement:
    cells = evidence["cells"]
    rows = cells[cells.model.isin(NOT_RUN) & cells.peak_allocated_bytes.notna()] if len(cells) else cells
    rows = rows[(rows["mode"] == "forward") & (rows.precision == "fp32")] if len(rows) else rows
    if set(NOT_RUN) - set(rows.model if len(rows) else ()):
        return CANNOT, "this study runs the small and the medium model, as the document; `model_sizes` runs the others"
    told = listing(f"{quantity(row.peak_allocated_bytes, 'bytes')} for `{row.model}`" for row in rows.itertuples())
    return (HOLDS if (rows.peak_allocated_bytes > CARD_BYTES).all() else DOES_NOT), f"a forward pass takes {told}"


def synchronising_costs_the_growth(evidence: Evidence) -> Judgement:
    """What grows with the context is the device's work, or the wait for it, as far as it has a clock of its own."""
    rows = evidence["clocks"]
    if len(rows):
        rows = rows[(rows["mode"] == "forward") & rows.wall_s.notna() & rows.device_s.notna()]
    told, shares = [], []
    for device, group in rows.groupby("device", sort=False) if len(rows) else ():
        first, last = (group.loc[edge()] for edge in (group.sequence_length.idxmin, group.sequence_length.idxmax))
        grown, worked = last.wall_s - first.wall_s, last.device_s - first.device_s
        if grown > 0:
            shares.append(worked / grown)
            told.append(
                f"on {device} from {int(first.sequence_length):,} to {int(last.sequence_length):,} tokens the wall "
                f"time grows by {quantity(grown, 's')} and the device's busy time by {quantity(worked, 's')}"
            )
    if not shares:
        return CANNOT, "no device here has a clock of its own, or nothing grows"
    return (DOES_NOT if min(shares) >= 0.5 else HOLDS), listing(told)


def products_take_most_time(evidence: Evidence) -> Judgement:
    """The kind of work that the named kernel does, in forward and in backward."""
    told, right = [], []
    for (device, probe, phase), share in kinds_of_phases(evidence, ("forward", "backward")).items():
        first = share.idxmax()
        right.append(first == "matrix product")
        told.append(f"{first} ({percent(share.max())}) in {probe}, {phase}, on {device}")
    if not told:
        return CANNOT, "no pass was looked at operator by operator"
    return (HOLDS if all(right) else DOES_NOT), f"most time takes {listing(told)}"


def optimizer_takes_a_huge_chunk(evidence: Evidence) -> Judgement:
    rows = steps(evidence)
    if rows.empty:
        return CANNOT, "no whole step was looked at operator by operator"
    share = rows.share.where(rows.phase == "optimizer", 0).groupby([rows.device, rows.probe], sort=False).sum()
    told = listing(f"{percent(value)} in {probe} on {device}" for (device, probe), value in share.items())
    return (HOLDS if (share >= HUGE).all() else DOES_NOT), f"the optimizer takes {told}"


def kinds_keep_their_shares(evidence: Evidence) -> Judgement:
    """Whether matrix products take the same share of a whole step as of a forward and backward."""
    rows = timed_operators(evidence)
    rows = rows[rows.category == "matrix product"] if len(rows) else rows
    if rows.empty:
        return CANNOT, "no pass was looked at operator by operator"
    shares = rows.groupby(["device", "probe", "mode"], sort=False).share.sum().unstack("mode")
    if not {"forward_backward", "step"} <= set(shares.columns):
        return CANNOT, "no probe looked at both passes"
    pairs = shares.dropna(subset=["forward_backward", "step"])
    told = listing(
        f"{percent(row.forward_backward)} and {percent(row.step)} in {row.Index[1]} on {row.Index[0]}"
        for row in pairs.itertuples()
    )
    same = ((pairs.forward_backward - pairs.step).abs() <= ALIKE).all()
    return (HOLDS if same else DOES_NOT), f"matrix products take of forward and backward, and of a step: {told}"


def softmax_takes_as_long_as_products(evidence: Evidence) -> Judgement:
    found = spelled_out(evidence)
    if found is None:
        return CANNOT, "attention was not seen spelled out as products and a softmax"
    told = [
        f"{quantity(row.product_s, 's')} for the products and {quantity(row.softmax_s, 's')} for the softmax of "
        f"attention on {row.device}"
        for row in found.itertuples()
    ]
    return (HOLDS if (found.softmax_s >= found.product_s).all() else DOES_NOT), f"forward, {listing(told)}"


def products_have_much_more_flops(evidence: Evidence) -> Judgement:
    found = spelled_out(evidence)
    found = found[found.softmax_flops.notna() & found.product_flops.notna()] if found is not None else found
    if found is None or found.empty:
        return CANNOT, "attention was not seen spelled out as products and a softmax"
    ratio = found.product_flops / found.softmax_flops
    told = f"the products of attention have {extent(times(value) for value in sorted(ratio))} the FLOPs of its softmax"
    return (HOLDS if (ratio >= MUCH_MORE).all() else DOES_NOT), told


def upcasting_changes_nothing(evidence: Evidence) -> Judgement:
    sums = errors_of_sums(evidence)
    if sums is None or not {("fp32", "fp16", False), ("fp32", "fp16", True), ("fp32", "fp32", False)} <= set(
        sums.index
    ):
        return CANNOT, "the sums were not all made"
    plain, upcast, exact = (abs(sums[key]) for key in (("fp32", "fp16", False), ("fp32", "fp16", True),
                                                       ("fp32", "fp32", False)))  # fmt: skip
    told = (
        f"added up in fp32, fp16 terms are off by {plain:.4f}, converted first by {upcast:.4f}, fp32 terms by "
        f"{exact:.4f}"
    )
    return (HOLDS if max(plain, upcast) <= EXACT_SUMS * exact else DOES_NOT), told


def sums_in_fp32_are_more_accurate(evidence: Evidence) -> Judgement:
    sums = errors_of_sums(evidence)
    if sums is None or not {("fp32", "fp16", False), ("fp16", "fp16", False)} <= set(sums.index):
        return CANNOT, "the sums were not made"
    wide, narrow = (abs(sums[key]) for key in (("fp32", "fp16", False), ("fp16", "fp16", False)))
    return (HOLDS if wide < narrow else DOES_NOT), f"fp16 terms: off by {wide:.4f} in fp32, by {narrow:.4f} in fp16"


def normalisation_gives_fp16(evidence: Evidence) -> Judgement:
    return _dtype(evidence, "normalisation")


def gradients_are_fp16(evidence: Evidence) -> Judgement:
    return _dtype(evidence, "gradients")


def _dtype(evidence: Evidence, point: str) -> Judgement:
    rows = evidence["autocast"]
    rows = rows[(rows.precision == "fp16") & rows[point].notna()] if len(rows) else rows
    if rows.empty:
        return CANNOT, "no step under fp16 autocast was observed"
    seen = sorted(set(rows[point]))
    return (HOLDS if seen == ["float16"] else DOES_NOT), f"observed under fp16 autocast: {listing(seen)}"


def mixed_is_faster_where_there_is_more(evidence: Evidence) -> Judgement:
    """Of two works that differ in batch, model or context alone, the larger should gain more."""
    rows = evidence["speedups"]
    if len(rows):
        rows = rows[(rows["mode"] == "step") & (rows.execution == "eager") & rows.precision.isin(["bf16", "fp16"])]
    told, right = [], []
    axes = {"batch_size": "batch", "n_params": "parameters", "sequence_length": "context"}
    for axis, word in axes.items() if len(rows) else ():
        others = [column for column in ("device", "precision", *axes) if column != axis]
        for values, group in rows.groupby(others, sort=False):
            first, last = group.loc[group[axis].idxmin()], group.loc[group[axis].idxmax()]
            if first[axis] < last[axis]:
                right.append(last.speedup > first.speedup and last.speedup > 1)
                fixed = dict(zip(others, values, strict=True))
                at = [f"{axes[column]} {int(fixed[column]):,}" for column in others if column in axes]
                sizes = f"{word} {int(first[axis]):,} to {int(last[axis]):,} ({', '.join([fixed['precision'], *at])})"
                told.append(f"{sizes}: {times(first.speedup)} to {times(last.speedup)}")
    if not told:
        return CANNOT, "no two works of different size were timed in mixed precision and in fp32"
    return (HOLDS if all(right) else DOES_NOT), "; ".join(told)


def mixed_saves_little_memory(evidence: Evidence) -> Judgement:
    limit = ADJECTIVES["small"] / 100
    rows = evidence["speedups"]
    if len(rows):
        rows = rows[rows.memory_ratio.notna() & rows.precision.isin(["bf16", "fp16"]) & (rows.execution == "eager")]
        rows = rows[(rows.batch_size * rows.sequence_length == 16 * 128) & (rows.sequence_length == 128)]
    if rows.empty:
        return CANNOT, "no peak was measured at the document's batch and context in both precisions"
    told = listing(f"{percent(row.memory_ratio - 1)} in {row.precision}, {row.mode}" for row in rows.itertuples())
    return (HOLDS if ((1 - rows.memory_ratio).abs() <= limit).all() else DOES_NOT), f"peak memory changes by {told}"


def a_layers_tensor_takes_0_75_mib(evidence: Evidence) -> Judgement:
    """The tensor of a layer that the document computes, among the blocks that were seen."""
    blocks = evidence["memory_blocks"]
    rows = blocks[blocks.arithmetic.str.startswith(LAYER)] if len(blocks) else blocks
    if rows.empty:
        return CANNOT, "no block of that shape was seen"
    right = (rows.block_bytes / LAYER_BYTES - 1).abs() <= ALIKE
    return (HOLDS if right.all() else DOES_NOT), f"seen: {rows.arithmetic.iloc[0]}, as {rows.what.iloc[0]}"


def logits_are_the_largest_block(evidence: Evidence) -> Judgement:
    """What is larger than a layer's tensors stands outside the blocks: the head and its loss."""
    blocks = evidence["memory_blocks"]
    if len(blocks):
        blocks = blocks[(blocks["mode"] == "step") & (blocks.batch_size == 16) & (blocks.sequence_length == 128)]
    if blocks.empty:
        return CANNOT, "the blocks of a step at the document's batch and context were not seen"
    rows = blocks.loc[blocks.groupby(["device", "precision"], sort=False).block_bytes.idxmax()]
    told = listing(f"{row.what} in {row.precision} ({row.arithmetic})" for row in rows.itertuples())
    return (HOLDS if rows.what.str.contains(OUTSIDE).all() else DOES_NOT), f"the largest block at the peak is {told}"


def backward_needs_two_matrices(evidence: Evidence) -> Judgement:
    rows = spelled_out_alone(evidence)
    rows = rows[rows.score_matrices.notna()] if len(rows) else rows
    if rows.empty:
        return CANNOT, "attention spelled out was not measured in fp32"
    last = rows[rows.sequence_length == rows.sequence_length.max()]
    kept = last.score_matrices
    told = f"before the backward pass {extent(digits(value) for value in sorted(kept))} matrices of scores are held"
    return (HOLDS if ((kept / 2 - 1).abs() <= ALIKE).all() else DOES_NOT), told


def context_4096_needs_3_gb(evidence: Evidence) -> Judgement:
    rows = spelled_out_alone(evidence)
    rows = rows[(rows.sequence_length == LONGEST) & rows.before_backward_bytes.notna()] if len(rows) else rows
    if rows.empty:
        return CANNOT, f"attention spelled out was not measured at {LONGEST:,} tokens in fp32"
    held = rows.before_backward_bytes
    told = f"{extent(quantity(value, 'bytes') for value in sorted(held))} over {plural(len(rows), 'head size')}"
    return (HOLDS if (held >= THREE_GB).all() else DOES_NOT), f"before the backward pass {told}"


def longer_contexts_exceed_the_card(evidence: Evidence) -> Judgement:
    rows = spelled_out_alone(evidence)
    rows = rows[(rows.sequence_length == 2 * LONGEST)] if len(rows) else rows
    peaks = rows.peak_bytes.fillna(rows.predicted_bytes).dropna() if len(rows) else rows
    if len(peaks) == 0:
        return CANNOT, f"attention spelled out was not measured at {2 * LONGEST:,} tokens in fp32"
    told = f"at {2 * LONGEST:,} tokens the peak is {extent(quantity(value, 'bytes') for value in sorted(peaks))}"
    return (HOLDS if (peaks > CARD_BYTES).all() else DOES_NOT), told


CHECKS = (
    minor_increase_without_warm_up, the_rest_cannot_be_run, synchronising_costs_the_growth, products_take_most_time,
    optimizer_takes_a_huge_chunk, kinds_keep_their_shares, softmax_takes_as_long_as_products,
    products_have_much_more_flops, upcasting_changes_nothing, sums_in_fp32_are_more_accurate, normalisation_gives_fp16,
    gradients_are_fp16, mixed_is_faster_where_there_is_more, mixed_saves_little_memory, a_layers_tensor_takes_0_75_mib,
    logits_are_the_largest_block, backward_needs_two_matrices,
    context_4096_needs_3_gb, longer_contexts_exceed_the_card,
)  # fmt: skip
