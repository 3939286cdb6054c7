"""What the study `model_sizes` says of each claim of its document.

What concerns a size in bytes is judged only where the model has the document's number of parameters: the same study at
reduced sizes says nothing of it.
"""

from collections.abc import Callable

import pandas as pd

from workflow_scripts.lib.comparisons import THRESHOLDS
from workflow_scripts.lib.evidence import CANNOT, DOES_NOT, HOLDS, Evidence, Judgement
from workflow_scripts.lib.judgements import after_discarding, extent, speed_within, variation_below
from workflow_scripts.lib.quantities import is_missing, listing, percent, plural, quantity, span, times

# The document's numbers that its claims are about.
PARAMETERS = {"small": 128.6e6, "medium": 423.2e6, "large": 969.4e6, "xl": 1998e6, "2.7b": 3406.8e6}
CARD_BYTES = 16e9
SAME_SIZE = 0.02  # a model within this share of the document's parameters is the document's
FLOAT32 = 4  # bytes
EXACT = 0.01  # a printed number within this share is right
ADEQUATE = 0.05  # a mean this close to the steady time has been warmed up enough
MINIMAL = 0.01  # relative distance of gradients, and difference of losses in nats per token, called minimal
COPIES = 0.05  # how far counted copies of the parameters may be off
SHRUNK = "the models measured here are not as large as the document's"


def cell_of(evidence: Evidence, model: str, **wanted: object) -> pd.Series | None:
    """The first cell of a model at the document's size that ran and has what is wanted of it."""
    cells = evidence["cells"]
    if cells.empty:
        return None
    rows = cells[(cells.model == model) & (cells.status == "ok")]
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    rows = rows[(rows.n_params / PARAMETERS[model] - 1).abs() <= SAME_SIZE]
    return None if rows.empty else rows.iloc[0]


PUBLISHED = {"batch_size": 4, "sequence_length": 512, "precision": "fp32", "execution": "eager"}


def _weight(model: str, stated_bytes: float) -> Callable[[Evidence], Judgement]:
    """Judges what the parameters of a model weigh in float32."""

    def judge(evidence: Evidence) -> Judgement:
        cell = cell_of(evidence, model)
        if cell is None:
            return CANNOT, SHRUNK
        found = FLOAT32 * float(cell.n_params)
        right = abs(found / stated_bytes - 1) <= EXACT
        told = f"`{model}` as trained here has {cell.n_params:,.0f} parameters, {found / 1e9:.2f} GB in float32"
        return (HOLDS if right else DOES_NOT), told

    return judge


def xl_parameters_weigh_8_gb(evidence: Evidence) -> Judgement:
    return _weight("xl", 8e9)(evidence)


def largest_parameters_weigh_10_8_gb(evidence: Evidence) -> Judgement:
    return _weight("2.7b", 10.8e9)(evidence)


def xl_activations_take_6_to_8_gb(evidence: Evidence) -> Judgement:
    found = _activations(evidence, "xl")
    if found is None:
        return CANNOT, _unmeasured("xl")
    told = f"after a forward pass {found / 1e9:.1f} GB are allocated beside the parameters"
    return (HOLDS if 6e9 <= found <= 8e9 else DOES_NOT), told


def xl_takes_20_to_25_gb(evidence: Evidence) -> Judgement:
    cell = cell_of(evidence, "xl", mode="forward_backward", **PUBLISHED)
    if cell is None or is_missing(cell.peak_allocated_bytes):
        return CANNOT, _unmeasured("xl")
    found = float(cell.peak_allocated_bytes)
    told = f"a forward and backward pass has a peak of {found / 1e9:.1f} GB"
    return (HOLDS if 20e9 * (1 - EXACT) <= found <= 25e9 * (1 + EXACT) else DOES_NOT), told


def one_multiplier_tells_activations(evidence: Evidence) -> Judgement:
    """The formula with what the document implies, 9.5 to 12.7."""
    found = {}
    for model in PARAMETERS:
        cell, activations = cell_of(evidence, model, mode="forward", **PUBLISHED), _activations(evidence, model)
        if cell is not None and activations is not None:
            size = cell.batch_size * cell.sequence_length * cell.n_embd * cell.n_layer * FLOAT32
            found[model] = activations / size
    if len(found) < 2:
        return CANNOT, SHRUNK
    told = f"the multiplier is {listing(f'{value:.1f} for `{model}`' for model, value in found.items())}"
    return (HOLDS if all(9.5 <= value <= 12.7 for value in found.values()) else DOES_NOT), told


def optimizer_keeps_2_to_3_copies(evidence: Evidence) -> Judgement:
    """What a step needs at its peak beyond a forward and backward is what the optimizer keeps, once it keeps it."""
    found = {}
    for model in PARAMETERS:
        cells = [cell_of(evidence, model, mode=mode, **PUBLISHED) for mode in ("step", "forward_backward")]
        peaks = [None if cell is None else cell.peak_allocated_bytes for cell in cells]
        if not any(is_missing(peak) for peak in peaks):
            found[model] = (peaks[0] - peaks[1]) / (FLOAT32 * float(cells[0].n_params))
    if not found:
        return CANNOT, SHRUNK
    told = f"a step's peak is higher by {listing(f'{value:.2f} × `{model}`' for model, value in found.items())}"
    inside = all(2 - COPIES <= value <= 3 + COPIES for value in found.values())
    return (HOLDS if inside else DOES_NOT), f"{told}, in float32 parameters"


def medium_is_stable(evidence: Evidence) -> Judgement:
    return variation_below(evidence, ["medium"], 0.02)


def small_and_large_vary_acceptably(evidence: Evidence) -> Judgement:
    return variation_below(evidence, ["small", "large"], 0.06)


def five_warm_ups_are_adequate(evidence: Evidence) -> Judgement:
    return after_discarding(evidence, (5,), lambda off: (off <= ADEQUATE).all())


def without_warm_up_is_slower(evidence: Evidence) -> Judgement:
    """By the first step alone: in the mean of ten, that of a model whose steps take a second hides."""
    rows = evidence["warm_up"]
    rows = rows[(rows.execution == "eager") & (rows.precision == "fp32")] if len(rows) else rows
    if rows.empty:
        return CANNOT, "no cell has enough steps"
    rows = rows.drop_duplicates(["device", "cell"])
    over = sorted(rows.first_step_s / rows.steady_s)
    told = f"the first step took {extent(map(times, over))} the time of a steady one, in {plural(len(rows), 'cell')}"
    return (HOLDS if over[0] > 1 + THRESHOLDS["same"] else DOES_NOT), told


def one_or_two_warm_ups_leave_some(evidence: Evidence) -> Judgement:
    return after_discarding(evidence, (1, 2), lambda off: (off > THRESHOLDS["same"]).any())


def tf32_is_as_accurate(evidence: Evidence) -> Judgement:
    rows = evidence["autocast"]
    rows = rows[rows.precision.isin(["tf32", "bf16"]) & rows.first_gradient_distance.notna()] if len(rows) else rows
    if rows.empty or "tf32" not in set(rows.precision):
        return CANNOT, "no step in tf32 was compared with fp32"
    told = [
        f"in {row.precision} the first gradient is off by {percent(row.first_gradient_distance)} and the loss by at "
        f"most {row.largest_loss_difference:.2g} nats per token"
        for row in rows.itertuples()
    ]
    ours = rows[rows.precision == "tf32"]
    near = (ours.first_gradient_distance <= MINIMAL) & (ours.largest_loss_difference <= MINIMAL)
    return (HOLDS if near.all() else DOES_NOT), listing(told)


def tf32_is_1_5_to_2_times_as_fast(evidence: Evidence) -> Judgement:
    return _speed(evidence, ["tf32"], 1.5, 2.0)


def mixed_is_2_to_3_times_as_fast(evidence: Evidence) -> Judgement:
    return _speed(evidence, ["fp16", "bf16"], 2.0, 3.0)


def _speed(evidence: Evidence, precisions: list[str], low: float, high: float) -> Judgement:
    """Judges the speed-ups of whole eager steps over fp32: wrong where an interval lies outside what is stated."""
    rows = evidence["speedups"]
    if len(rows):
        rows = rows[rows.precision.isin(precisions) & (rows.execution == "eager") & (rows["mode"] == "step")]
    return speed_within(rows, low, high, "in these precisions no step was timed")


def compiled_is_1_3_to_2_times_as_fast(evidence: Evidence) -> Judgement:
    rows = evidence["executions"]
    rows = rows[(rows.execution == "compiled") & (rows["mode"] == "step")] if len(rows) else rows
    return speed_within(rows, 1.3, 2.0, "no compiled step was timed")


def mixed_halves_memory(evidence: Evidence) -> Judgement:
    rows = evidence["speedups"]
    if len(rows):
        rows = rows[rows.precision.isin(["fp16", "bf16"]) & (rows.execution == "eager") & rows.memory_ratio.notna()]
    if rows.empty:
        return CANNOT, "no peak was measured in both precisions"
    saved = 1 / rows.memory_ratio
    told = f"fp32 needs {span(saved.min(), saved.max())}× the peak of mixed precision, in {plural(len(rows), 'pair')}"
    return (HOLDS if ((saved / 2 - 1).abs() <= THRESHOLDS["listed_ratio"]).all() else DOES_NOT), told


def clocks_explain_the_spread(evidence: Evidence) -> Judgement:
    """A clock that stood still and no throttling leave the spread to something else."""
    cells, devices = evidence["cells"], evidence["devices"]
    gpus = devices[devices.type != "cpu"].device if len(devices) else []
    rows = cells[cells.device.isin(gpus) & cells.clock_mhz.notna()] if len(cells) else cells
    rows = rows[rows.step_time_std_s.notna()] if len(rows) else rows
    if rows.empty:
        return CANNOT, "no clock of a GPU was read"
    cv = (rows.step_time_std_s / rows.step_time_mean_s).max()
    moved = rows.clock_mhz.max() / rows.clock_mhz.min() - 1
    throttled = rows.throttle.notna() & (rows.throttle != "none")
    told = (
        f"clocks of {plural(len(rows), 'cell')} lay within {percent(moved)}, {int(throttled.sum()):,} were throttled, "
        f"and the coefficient of variation reached {percent(cv)}"
    )
    still = moved <= THRESHOLDS["clock_drop"] and not throttled.any()
    return (DOES_NOT if still else CANNOT), told


def one_process_is_reliable(evidence: Evidence) -> Judgement:
    rows = evidence["isolation"]
    rows = rows[rows.time_ratio.notna()] if len(rows) else rows
    if rows.empty:
        return CANNOT, "no cell was measured both ways"
    counted = listing(f"{n:,} {verdict}" for verdict, n in rows.verdict.value_counts().items())
    told = (
        f"in one process for all, {plural(len(rows), 'cell')} took "
        f"{span(rows.time_ratio.min(), rows.time_ratio.max())}× the time of a process each: {counted}"
    )
    if rows.verdict.isin(["faster", "slower"]).any():
        return DOES_NOT, told
    return (HOLDS if (rows.verdict == "same").all() else CANNOT), told


def two_largest_exceed_the_card(evidence: Evidence) -> Judgement:
    return _on_the_card(
        evidence, [(model, PUBLISHED | {"mode": "forward_backward"}) for model in ("xl", "2.7b")], False
    )


def reduced_shapes_fit_the_card(evidence: Evidence) -> Judgement:
    common = {"precision": "fp32", "mode": "forward_backward"}
    return _on_the_card(
        evidence,
        [
            ("xl", common | {"batch_size": 2, "sequence_length": 256}),
            ("2.7b", common | {"batch_size": 1, "sequence_length": 128}),
        ],
        True,
    )


def a_forward_pass_fits_the_card(evidence: Evidence) -> Judgement:
    wanted = {"precision": "fp32", "mode": "forward", "batch_size": 2, "sequence_length": 512}
    return _on_the_card(evidence, [("xl", wanted)], True)


def _on_the_card(evidence: Evidence, wanted: list[tuple[str, dict[str, object]]], should_fit: bool) -> Judgement:
    """Judges by measured peaks whether configurations fit the document's card."""
    found = {}
    for model, one in wanted:
        cell = cell_of(evidence, model, **one)
        if cell is None or is_missing(cell.peak_allocated_bytes):
            return CANNOT, _unmeasured(model)
        found[f"`{model}`"] = float(cell.peak_allocated_bytes)
    told = listing(f"{name} has a peak of {quantity(peak, 'bytes')}" for name, peak in found.items())
    right = all((peak <= CARD_BYTES) == should_fit for peak in found.values())
    return (HOLDS if right else DOES_NOT), f"{told}, of {quantity(CARD_BYTES, 'bytes')}"


def _activations(evidence: Evidence, model: str) -> float | None:
    """Bytes that a forward pass at the published shape leaves allocated at its peak beside the parameters."""
    cell = cell_of(evidence, model, mode="forward", **PUBLISHED)
    if cell is None or is_missing(cell.peak_allocated_bytes):
        return None
    return float(cell.peak_allocated_bytes) - FLOAT32 * float(cell.n_params)


def _unmeasured(model: str) -> str:
    return f"no peak of `{model}` at the document's size was measured"


CHECKS = (
    xl_parameters_weigh_8_gb, largest_parameters_weigh_10_8_gb, xl_activations_take_6_to_8_gb, xl_takes_20_to_25_gb,
    one_multiplier_tells_activations, optimizer_keeps_2_to_3_copies, medium_is_stable, small_and_large_vary_acceptably,
    five_warm_ups_are_adequate, without_warm_up_is_slower, one_or_two_warm_ups_leave_some, tf32_is_as_accurate,
    tf32_is_1_5_to_2_times_as_fast, mixed_is_2_to_3_times_as_fast, compiled_is_1_3_to_2_times_as_fast,
    mixed_halves_memory, clocks_explain_the_spread, one_process_is_reliable, two_largest_exceed_the_card,
    reduced_shapes_fit_the_card, a_forward_pass_fits_the_card,
)  # fmt: skip
