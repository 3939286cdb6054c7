"""Every rule and every kind of claim, by name, and the table that documents them."""

from types import ModuleType

from workflow_scripts.lib.audit import (
    claim_kinds,
    claim_models,
    comparisons,
    conditions,
    matching,
    memory,
    operators,
    recorded,
    samples,
    throughput,
    timing,
    treatments,
)
from workflow_scripts.lib.audit.claims import Kind
from workflow_scripts.lib.audit.findings import Rule

RULE_MODULES: tuple[ModuleType, ...] = (
    timing, samples, throughput, memory, treatments, comparisons, matching, conditions, operators, recorded,
)  # fmt: skip
CLAIM_MODULES: tuple[ModuleType, ...] = (claim_kinds, claim_models)

RULES: dict[str, Rule] = {
    found.name: found for module in RULE_MODULES for found in vars(module).values() if isinstance(found, Rule)
}
CLAIM_KINDS: dict[str, Kind] = {
    found.name: found for module in CLAIM_MODULES for found in vars(module).values() if isinstance(found, Kind)
}


def rules_table() -> str:
    """Prints the registry as a Markdown table, one row a rule, in the order of the modules."""
    lines = ["| rule | severity | what it means | thresholds | what to do |", "|---|---|---|---|---|"]
    for rule in RULES.values():
        lines.append(
            f"| `{rule.name}` | {rule.severity} | {rule.meaning} | {_bounds(rule.thresholds)} | {rule.advice} |"
        )
    for kind in CLAIM_KINDS.values():
        lines.append(f"| `claim_{kind.name}` | error | {kind.meaning} | {_bounds(kind.thresholds)} | {kind.advice} |")
    return "\n".join(lines) + "\n"


def _bounds(thresholds: dict[str, float]) -> str:
    return ", ".join(f"{name} {bound:g}" for name, bound in thresholds.items())
