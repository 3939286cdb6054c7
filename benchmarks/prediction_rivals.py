"""What others would say of a step's time, and the errors of all beside each other."""

import itertools
import statistics
from collections.abc import Callable, Sequence

from benchmarks.rounds import steady_times
from workflow_scripts.lib.cost_model import Case, TimeModel
from workflow_scripts.lib.counts import count_parameters, flops_per_token
from workflow_scripts.lib.operator_rates import Rates
from workflow_scripts.lib.operator_work import LAUNCHES, call_bytes, flops, step_operators
from workflow_scripts.lib.specs import ModelShape, StepSpec

FEW = 3
TARGETS = {"assay_from_3": 0.08, "assay_from_all": 0.06}  # mean absolute error, relative, at most


def six_n(shape: ModelShape, step: StepSpec, flop_per_s: float) -> float:
    """6 N FLOPs for each token (Kaplan et al. 2020), at a rate; in s."""
    return 6 * count_parameters(shape).total * step.batch_size * shape.sequence_length / flop_per_s


def palm(shape: ModelShape, step: StepSpec, flop_per_s: float) -> float:
    """The FLOPs of all products with attention (PaLM, Chowdhery et al. 2022, appendix B), at a rate; in s."""
    tokens = step.batch_size * shape.sequence_length
    return tokens * flops_per_token(shape, shape.sequence_length).training / flop_per_s


def roofline(shape: ModelShape, step: StepSpec, rates: Rates) -> float:
    """The sum over operators of max(FLOPs / ceiling, bytes / bandwidth) plus launches; in s."""
    total_s = 0.0
    for operator in step_operators(shape, step):
        for direction, calls in (("forward", operator.calls), ("backward", operator.backward_calls)):
            if calls:
                arithmetic_s = flops(operator.kind, operator.dims, direction) / rates.flop_per_s
                moved = call_bytes(operator, direction, step)
                launches = LAUNCHES[operator.kind][direction == "backward"]
                total_s += calls * (max(arithmetic_s, moved / rates.bytes_per_s) + launches * rates.operator_s)
    return total_s


def compare(
    known: Sequence[Case],
    fresh: Sequence[Case],
    model: TimeModel,
    datasheet: float | None,
    visits: Sequence[Sequence[float]] = (),
) -> dict[str, list[float]]:
    """Gives every predictor's errors on fresh cases, as lists of predicted over measured less 1.

    Args:
        known: cases to fit on.
        fresh: cases drawn afterwards.
        model: the device's, fitted on nothing.
        datasheet: the vendor's FLOP/s in this precision; None leaves that predictor out.
        visits: of each fresh case its single measurements: every second one as a predictor of the others.

    Returns:
        By predictor; `assay_from_3` has the errors of every choice of `FEW` of the known cases.
    """
    rates, device_type = model.rates, model.device_type

    def errors(predict: Callable[[Case], float]) -> list[float]:
        return [predict(case) / case.step_time_s - 1 for case in fresh]

    def fitted(cases: Sequence[Case]) -> Callable[[Case], float]:
        one = TimeModel(device_type=device_type, rates=rates, cases=tuple(cases))
        return lambda case: one.predict(case.shape, case.step, case.optimizer).step_time_s

    found = {}
    if datasheet:
        found["6n_over_datasheet"] = errors(lambda case: six_n(case.shape, case.step, datasheet))
    found["palm_over_measured_product"] = errors(lambda case: palm(case.shape, case.step, rates.flop_per_s))
    found["roofline_sum"] = errors(lambda case: roofline(case.shape, case.step, rates))
    found["assay_from_0"] = errors(fitted(()))
    if len(known) >= FEW:
        found["assay_from_3"] = [e for few in itertools.combinations(known, FEW) for e in errors(fitted(few))]
    if len(known) > FEW:
        found["assay_from_all"] = errors(fitted(known))
    if repeated := [times for times in visits if len(times) > 1]:
        halves = (steady_times([times[first::2] for times in repeated]) for first in (1, 0))
        found["measured_again"] = [again / once - 1 for again, once in zip(*halves, strict=True)]
    return found


def within_interval(known: Sequence[Case], fresh: Sequence[Case], model: TimeModel) -> float:
    """The share of fresh cases inside the 95 % interval of the model fitted on all known ones."""
    one = TimeModel(device_type=model.device_type, rates=model.rates, cases=tuple(known))
    inside = 0
    for case in fresh:
        predicted = one.predict(case.shape, case.step, case.optimizer)
        inside += predicted.low_s <= case.step_time_s <= predicted.high_s
    return inside / len(fresh)


def figures_of(errors: dict[str, list[float]]) -> dict[str, float]:
    """Mean, median and largest absolute error of each predictor, and its mean signed error."""
    figures = {}
    for name, values in errors.items():
        absolute = [abs(value) for value in values]
        figures[f"{name}.mean_error"] = statistics.fmean(absolute)
        figures[f"{name}.median_error"] = statistics.median(absolute)
        figures[f"{name}.largest_error"] = max(absolute)
        figures[f"{name}.bias"] = statistics.fmean(values)
    return figures
