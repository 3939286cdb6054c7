"""What the study `interactions` says of each claim of its document.

What a claim says in numbers, or of a loss, is judged only by runs of the document's size and length.
"""

from collections.abc import Callable

from workflow_scripts.lib.audit.claim_kinds import ADJECTIVES
from workflow_scripts.lib.evidence import CANNOT, DOES_NOT, HOLDS, Evidence, Judgement
from workflow_scripts.lib.experiments import BASELINE
from workflow_scripts.lib.own_experiments import (
    SHRUNK,
    UNTRAINED,
    Change,
    always,
    as_published,
    by_as_much,
    changes,
    no_more_than,
    signed,
    synergy,
    together,
)
from workflow_scripts.lib.quantities import digits, listing, percent

PUBLISHED = {"n_layer": 6, "n_embd": 384, "batch_size": 64, "sequence_length": 256, "n_steps": 5000}
SIZES = ("context_x2", "layers_x2", "embeddings_x2")
FORMATS = ("fp16", "bf16")
SPREAD = 0.02  # coefficient of variation over seeds up to which runs are called consistent


def size_alone(evidence: Evidence, outcome: str, size: str) -> list[Change]:
    """What a size changes where nothing else is changed."""
    return changes(evidence, outcome, {"size": size}, {"size": BASELINE}, "optimization", BASELINE)


def optimized(evidence: Evidence, outcome: str, level: str, only: str | None = None) -> list[Change]:
    """What an optimization changes, at each size."""
    return changes(evidence, outcome, {"optimization": level}, {"optimization": BASELINE}, "size", only)


def _if_published(judge: Callable[[Evidence], Judgement]) -> Callable[[Evidence], Judgement]:
    def judged(evidence: Evidence) -> Judgement:
        return judge(evidence) if as_published(evidence, **PUBLISHED) else (CANNOT, SHRUNK)

    judged.__name__ = judge.__name__
    return judged


def _states(name: str, level: str, outcome: str, stated: float) -> Callable[[Evidence], Judgement]:
    """A check of a change that the document prints, of a size or of an optimization at the default size."""

    def judge(evidence: Evidence) -> Judgement:
        found = size_alone(evidence, outcome, level) if level in SIZES else None
        return by_as_much(found if found is not None else optimized(evidence, outcome, level, BASELINE), stated)

    judge.__name__ = name
    return _if_published(judge)


def larger_costs_more(evidence: Evidence) -> Judgement:
    found = [change for outcome in ("peak_bytes", "train_s") for size in SIZES
             for change in changes(evidence, outcome, {"size": size}, {"size": BASELINE}, "optimization")]  # fmt: skip
    return always(found, 1)


@_if_published
def larger_learns_more(evidence: Evidence) -> Judgement:
    found = [change for size in SIZES for change in
             changes(evidence, "final_val_loss", {"size": size}, {"size": BASELINE}, "optimization")]  # fmt: skip
    return always(found, -1)


@_if_published
def embeddings_lower_loss_most(evidence: Evidence) -> Judgement:
    least, most = {}, []
    for size in SIZES:
        for change in size_alone(evidence, "final_val_loss", size):
            least.setdefault(change.device, {})[size] = change.share
            most += [change] if size == "embeddings_x2" else []
    if not most:
        return CANNOT, UNTRAINED
    first = {device: min(shares, key=shares.get) for device, shares in least.items()}
    named = listing(f"`{size}` ({signed(least[device][size])}) on {device}" for device, size in first.items())
    order = HOLDS if set(first.values()) == {"embeddings_x2"} else DOES_NOT
    return together(by_as_much(most, -0.61), (order, f"the lowest validation loss is that of {named}"))


@_if_published
def layers_are_the_best_trade(evidence: Evidence) -> Judgement:
    told, right = [], True
    for cost in ("peak_bytes", "train_s"):
        gains: dict[str, dict[str, float]] = {}
        for size in SIZES:
            losses = {one.device: one.share for one in size_alone(evidence, "final_val_loss", size)}
            for one in size_alone(evidence, cost, size):
                if one.device in losses and one.share > 0:
                    gains.setdefault(one.device, {})[size] = -losses[one.device] / one.share
        for device, found in gains.items():
            right &= max(found, key=found.get) == "layers_x2"
            each = listing(f"{digits(gain, 2)} with `{size}`" for size, gain in found.items())
            told.append(
                f"loss per {'memory' if cost == 'peak_bytes' else 'time'}, in per cent each, on {device}: {each}"
            )
    if not told:
        return CANNOT, UNTRAINED
    return (HOLDS if right else DOES_NOT), "; ".join(told)


@_if_published
def formats_cost_no_loss(evidence: Evidence) -> Judgement:
    times = [change for level in FORMATS for change in optimized(evidence, "train_s", level)]
    losses = [change for level in FORMATS for change in optimized(evidence, "final_val_loss", level)]
    return together(always(times, -1), no_more_than(losses, ADJECTIVES["no effect"] / 100))


def formats_halve_memory(evidence: Evidence) -> Judgement:
    return by_as_much([change for level in FORMATS for change in optimized(evidence, "peak_bytes", level)], -0.5)


def formats_are_alike(evidence: Evidence) -> Judgement:
    limit = ADJECTIVES["nearly identical"] / 100
    sides = {"optimization": "bf16"}, {"optimization": "fp16"}
    outcomes = ("peak_bytes", "train_s", "final_val_loss")
    return together(*(no_more_than(changes(evidence, outcome, *sides, "size"), limit) for outcome in outcomes))


@_if_published
def small_batch_loses_little(evidence: Evidence) -> Judgement:
    return no_more_than(optimized(evidence, "final_val_loss", "quarter_batch"), ADJECTIVES["marginal"] / 100)


@_if_published
def accumulation_changes_nothing_else(evidence: Evidence) -> Judgement:
    limit = ADJECTIVES["no effect"] / 100
    outcomes = ("final_val_loss", "train_s")
    return together(*(no_more_than(optimized(evidence, name, "accumulation_4"), limit) for name in outcomes))


def formats_and_sizes_help_each_other(evidence: Evidence) -> Judgement:
    return synergy(evidence, list(FORMATS), ["peak_bytes", "train_s"])


def accumulation_and_sizes_help_each_other(evidence: Evidence) -> Judgement:
    return synergy(evidence, ["accumulation_4"], ["peak_bytes", "train_s"])


@_if_published
def accumulation_steadies_learning(evidence: Evidence) -> Judgement:
    noise = always(optimized(evidence, "train_loss_noise", "accumulation_4"), -1)
    return together(synergy(evidence, ["accumulation_4"], ["final_val_loss"]), noise)


def seeds_agree(evidence: Evidence) -> Judgement:
    table = evidence["outcomes"]
    rows = table[table.status == "ok"] if len(table) else table
    spreads = []
    for outcome in ("peak_bytes", "train_s", "final_val_loss"):
        groups = rows.groupby(["device", "name", "treatment"])[outcome] if len(rows) else None
        if groups is not None and groups.count().max() >= 2:
            spreads.append((groups.std() / groups.mean()).dropna())
    if not spreads:
        return CANNOT, "no run was repeated with another seed"
    within, n = (sum(f(one) for one in spreads) for f in (lambda one: int((one <= SPREAD).sum()), len))
    text = (
        f"coefficients of variation over seeds, of memory, time and loss: {within:,} of {n:,} up to {percent(SPREAD)}"
    )
    return (HOLDS if within > n / 2 else DOES_NOT), f"{text}, the largest {percent(max(one.max() for one in spreads))}"


CHECKS = (
    larger_costs_more, larger_learns_more, embeddings_lower_loss_most, layers_are_the_best_trade, formats_cost_no_loss,
    formats_halve_memory, formats_are_alike, small_batch_loses_little, accumulation_changes_nothing_else,
    formats_and_sizes_help_each_other, accumulation_and_sizes_help_each_other, accumulation_steadies_learning,
    seeds_agree,
    _states("embeddings_take_85_percent_more_memory", "embeddings_x2", "peak_bytes", 0.85),
    _states("embeddings_take_151_percent_more_time", "embeddings_x2", "train_s", 1.51),
    _states("sgd_saves_14_percent_of_memory", "sgd", "peak_bytes", -0.14),
    _states("sgd_saves_5_percent_of_time", "sgd", "train_s", -0.05),
    _states("sgd_raises_loss_by_213_percent", "sgd", "final_val_loss", 2.13),
    _states("small_batch_saves_68_percent_of_memory", "quarter_batch", "peak_bytes", -0.68),
    _states("small_batch_saves_57_percent_of_time", "quarter_batch", "train_s", -0.57),
    _states("small_batch_raises_loss_by_44_percent", "quarter_batch", "final_val_loss", 0.44),
    _states("accumulation_saves_73_percent_of_memory", "accumulation_4", "peak_bytes", -0.73),
)  # fmt: skip
