"""What the audit says: findings, and the card that turns a generator of observations into a rule."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]
Scope = Literal["table", "document", "claim"]
Doubts = Literal["all", "time"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

# What the columns that a rule may lack are called in a sentence.
WORDS = {
    "n_samples": "number of samples",
    "n_tokens": "token count",
    "n_steps": "step count",
    "n_seeds": "number of seeds",
    "n_params": "number of parameters",
    "n_allocations": "the number of allocations",
    "peak_allocated_bytes": "peak allocated memory",
    "peak_reserved_bytes": "peak reserved memory",
    "peak_process_bytes": "peak process memory",
    "before_backward_bytes": "memory before backward",
    "peak_bytes": "peak memory",
    "share_percent": "share of its time",
    "n_repeats": "repeated cell",
    "swap_bytes": "swap",
    "temperature_c": "temperature",
    "power_w": "power",
    "load": "load of other processes",
    "clock_hz": "clocks",
    "sync_time_s": "time of a synchronisation",
    "achieved_bytes_per_s": "achieved bytes/s",
    "train_s": "training time",
    "step_time_mean_s": "step time",
    "step_time_s": "step time",
    "tokens_per_step": "tokens per step",
    "final_val_loss": "validation loss",
    "loss_split": "name of the split",
    "peak_flop_per_s": "peak FLOP/s of the device",
    "peak_bytes_per_s": "bandwidth",
    "achieved_flop_per_s": "achieved FLOP/s",
    "memory_quantity": "name of the memory quantity",
    "memory_limit_method": "source of the memory limit",
    "observed_precision": "precision read back",
    "observed_optimizer": "optimizer read back",
    "observed_device": "device read back",
    "observed_with": "word on what it was read with",
    "observed_threads": "thread count read back",
    "observed_accumulation": "accumulation read back",
    "sync_check_ratio": "self-check of the synchronisation (n against 2n work)",
    "isolation": "statement of one process per cell",
    "matmul_precision": "precision of matrix products (IEEE or TF32)",
    "batch_size": "batch size",
    "sequence_length": "context length",
    "warmup_steps": "number of warm-up steps",
    "learning_rate": "learning rate",
    "last_rate": "learning rate of the last step",
    "n_layer": "number of layers",
    "spread": "repeat in a fresh process",
    "host_time_s": "host time",
    "device_time_s": "device time",
}


def words(column: str) -> str:
    """Names a column, or alternatives `a|b`, in a sentence."""
    return " or ".join(WORDS.get(name, name.replace("_", " ")) for name in column.split("|"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that the audit has to say: which rule, of which row or comparison, with which numbers.

    `doubts` says what of the subject it makes doubtful: all, or only how long it took.
    """

    rule: str
    severity: Severity
    subject: str
    message: str
    advice: str
    numbers: dict[str, Any]
    doubts: Doubts = "all"


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a rule saw, before its card adds name, severity and advice. `severity` overrides the card's."""

    subject: str
    message: str
    numbers: dict[str, Any] = dataclasses.field(default_factory=dict)
    severity: Severity | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule of the audit: calling it with its material gives findings.

    `applies` names the columns that a table must have to be the rule's business (an empty column counts: the table
    speaks of it and gives no number); `needs` those without any value of which the rule says that it cannot be
    checked. An entry `a|b` is met by either column.
    """

    name: str
    scope: Scope
    severity: Severity
    doubts: Doubts
    meaning: str
    advice: str
    applies: tuple[str, ...]
    needs: tuple[str, ...]
    thresholds: dict[str, float]
    observe: Callable[..., Iterable[Seen]]

    def __call__(self, *material: Any) -> list[Finding]:
        """Gives the findings on `material`: a table; a document's tables; or a claim and its document's tables."""
        if self.scope != "table":
            return [self.finding(seen) for seen in self.observe(*material)]
        (table,) = material
        if not all(any(name in table.columns for name in entry.split("|")) for entry in self.applies):
            return []
        if table.empty:
            return []
        lacking = [entry for entry in self.needs if not has_any(table, entry)]
        if lacking:
            reason = " and no ".join(words(entry) for entry in lacking)
            return [self.finding(Seen("all rows", f"cannot be checked: no {reason}", {}, "note"))]
        return [self.finding(seen) for seen in self.observe(table)]

    def finding(self, seen: Seen) -> Finding:
        return Finding(
            rule=self.name,
            severity=seen.severity or self.severity,
            doubts=self.doubts,
            subject=seen.subject,
            message=seen.message,
            advice=self.advice,
            numbers=seen.numbers,
        )


def has_any(table: Any, entry: str) -> bool:
    """Whether any of the columns `a|b` has a value in some row."""
    return any(name in table.columns and bool(table[name].notna().any()) for name in entry.split("|"))


def rule(
    *,
    severity: Severity,
    meaning: str,
    advice: str,
    scope: Scope = "table",
    doubts: Doubts = "all",
    applies: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
    **thresholds: float,
) -> Callable[[Callable[..., Iterable[Seen]]], Rule]:
    """Makes a rule of a generator of `Seen`; keywords in capitals are its thresholds, shown in the rules' table."""

    def card(observe: Callable[..., Iterable[Seen]]) -> Rule:
        return Rule(
            name=observe.__name__,
            scope=scope,
            severity=severity,
            doubts=doubts,
            meaning=meaning,
            advice=advice,
            applies=applies,
            needs=needs,
            thresholds=thresholds,
            observe=observe,
        )

    return card
