"""The audit of published documents as plain values: for the JSON file, and for the page's template."""

import collections
import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from workflow_scripts.lib.audit.apply import Audited
from workflow_scripts.lib.audit.findings import SEVERITIES, Finding, words
from workflow_scripts.lib.audit.frames import SHAPE
from workflow_scripts.lib.audit.registry import CLAIM_KINDS, RULES
from workflow_scripts.lib.audit.wording import quantity

SHOWN = 4  # findings of one rule that stand open on the page
NARROW = 52  # characters of a row that leave room for the findings beside it
VERDICTS = ("does not hold", "cannot be said", "holds")
SETTINGS = ("changes", "optimizer", "schedule", "accumulation", "sitting", "precision")  # told by the treatment's name
HEADINGS = {
    "n_params": "parameters",
    "step_time_mean_s": "mean time",
    "step_time_std_s": "std",
    "cv_percent": "CV",
    "n_allocations": "allocations",
    "train_s": "time, s",
    "peak_reserved_bytes": "memory reserved",
    "peak_bytes": "peak memory",
    "before_backward_bytes": "memory before backward",
    "sequence_length": "context",
    "batch_size": "batch",
    "n_embd": "width",
    "n_layer": "layers",
    "n_head": "heads",
    "n_inner": "inner width",
    "warmup_steps": "warm-up",
    "n_samples": "n",
    "n_steps": "steps",
    "n_seeds": "runs",
    "host_time_s": "profiler range",
    "device_memory_bytes": "device memory",
    "n_calls": "calls",
    "call_time_s": "mean call",
    "total_time_s": "total",
    "share_percent": "share",
    "added_as": "added as",
    "in_grid": "in the grid",
    "expected_speedup": "expected",
    "sum_of": "sum of",
    "matched_on": "matched on",
    "reference_device": "against",
}


def as_json(audited: Iterable[Audited]) -> dict[str, Any]:
    """The whole audit as JSON values: findings and verdicts by document, and their counts."""
    documents = [
        {
            "study": one.document.study,
            "title": one.document.title,
            "counts": counts(one),
            "mistakes": mistakes(one),
            "findings": [plain(dataclasses.asdict(finding)) for finding in one.findings()],
            "claims": [
                {
                    "quote": claim["quote"],
                    "kind": claim["kind"],
                    "verdict": verdict.holds,
                    "message": verdict.message,
                    "numbers": plain(verdict.numbers),
                }
                for claim, verdict, _ in one.verdicts
            ],
            "assumptions": one.document.assumptions,
        }
        for one in audited
    ]
    total = collections.Counter()
    for document in documents:
        total.update(document["counts"])
    return {"counts": dict(total), "mistakes": tally(documents), "documents": documents}


def counts(one: Audited) -> dict[str, int]:
    """How many findings of each severity a document's tables have, and how many claims of each verdict."""
    found = collections.Counter(finding.severity for findings in one.by_table.values() for finding in findings)
    found.update(finding.severity for finding in one.across)
    judged = collections.Counter(verdict.holds for _, verdict, _ in one.verdicts)
    return {name: found[name] for name in SEVERITIES} | {name: judged[name] for name in VERDICTS}


def mistakes(one: Audited) -> list[dict[str, Any]]:
    """The known mistakes of a document with the finding that shows each: `rule`, `where` and `found`, or None."""
    either = {"beyond": None, "headline": False}
    return [{"id": id, **either, **known, **_shown(one, known)} for id, known in one.document.mistakes.items()]


def _shown(one: Audited, known: dict[str, Any]) -> dict[str, Any]:
    for finding in one.findings():
        if finding.rule == known["rule"] and known["subject"] in finding.subject:
            where = finding.subject.removeprefix(one.document.study).lstrip(",: ")
            return {"where": where, "found": finding.message, "severity": finding.severity}
    return {"where": None, "found": None, "severity": None}


def tally(told: Iterable[dict[str, Any]]) -> dict[str, int]:
    """How many mistakes are known, of what `sections` or `as_json` tells; how many were found, and how many in part."""
    known = [mistake for document in told for mistake in document["mistakes"]]
    found = [mistake for mistake in known if mistake["found"]]
    return {
        "known": len(known),
        "found": len(found),
        "in_part": sum(mistake["beyond"] is not None for mistake in found),
    }


def headlines(documents: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mistakes for the first screen, each with the study and the title of its document; only what was found."""
    return [
        {**mistake, "study": document["study"], "title": document["title"]}
        for document in documents
        for mistake in document["mistakes"]
        if mistake["headline"] and mistake["found"]
    ]


def plain(found: Any) -> Any:
    """JSON values only: numpy scalars become numbers, what is not finite becomes null."""
    if isinstance(found, dict):
        return {str(name): plain(one) for name, one in found.items()}
    if isinstance(found, list | tuple | set | frozenset):
        return [plain(one) for one in found]
    if isinstance(found, bool | str | int) or found is None:
        return found
    number = float(found)
    if not math.isfinite(number):
        return None
    return number if isinstance(found, float) or not number.is_integer() else int(number)


def sections(audited: Iterable[Audited]) -> list[dict[str, Any]]:
    """What the page prints of each document."""
    return [
        {
            "study": one.document.study,
            "title": one.document.title,
            "counts": counts(one),
            "mistakes": mistakes(one),
            "tables": [_table(one, name) for name in one.document.about],
            "across": _grouped(one.across),
            "claims": sorted(
                (
                    {
                        "quote": claim["quote"],
                        "about": claim.get("about", ""),
                        "verdict": verdict.holds,
                        "message": verdict.message,
                        "note": claim.get("note", ""),
                    }
                    for claim, verdict, _ in one.verdicts
                ),
                key=lambda claim: VERDICTS.index(claim["verdict"]),
            ),
            "assumptions": _assumptions(one),
        }
        for one in audited
    ]


def _table(one: Audited, name: str) -> dict[str, Any]:
    printed = one.document.printed[name]
    shown, common, unstated = [], [], []
    heads = {heading.partition(" [")[0] for heading in printed.columns}
    for heading in printed.columns:
        column = heading.partition(" [")[0]
        values = set(printed[heading])
        if values == {""}:
            unstated.append(_heading(heading))
        elif len(values) == 1 and len(printed) > 1:
            common.append((_heading(heading), values.pop().replace("forward_backward", "forward and backward")))
        elif not ({"model", "treatment"} <= heads and column in (*SHAPE, *SETTINGS)):
            shown.append(heading)
    return {
        **one.document.about[name],
        "name": name,
        "heads": [{"text": _heading(heading), "number": _is_number(printed[heading])} for heading in shown],
        "rows": [
            [{"text": row[heading] or "–", "number": _is_number(printed[heading])} for heading in shown]
            for _, row in printed.iterrows()
        ],
        "common": common,
        "unstated": unstated,
        "narrow": sum(max(map(len, (*printed[heading], _heading(heading)))) + 3 for heading in shown) <= NARROW,
        "findings": _grouped(one.by_table[name]),
    }


def _heading(heading: str) -> str:
    column, _, unit = heading.partition(" [")
    text = HEADINGS.get(column, words(column))
    return f"{text}, {unit.rstrip(']').replace('us', 'µs')}" if unit else text


def _is_number(values: pd.Series) -> bool:
    return all(value.lstrip("~−-")[:1].isdigit() for value in values if value)


def _grouped(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings by rule and severity, in their order, with the rule's meaning and advice said once."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.rule, finding.severity), []).append(finding)
    return [
        {
            "rule": rule,
            "severity": severity,
            "meaning": RULES[rule].meaning,
            "advice": RULES[rule].advice,
            "open": [_line(finding) for finding in found[:SHOWN]],
            "more": [_line(finding) for finding in found[SHOWN:]],
        }
        for (rule, severity), found in groups.items()
    ]


def _line(finding: Finding) -> dict[str, str]:
    return {"subject": "" if finding.subject == "all rows" else finding.subject, "message": finding.message}


def _assumptions(one: Audited) -> list[dict[str, str]]:
    """What was assumed, by reason; entries that only repeat a reason are told with it."""
    told: list[dict[str, Any]] = []
    for entry in one.document.assumptions:
        given = {**entry.get("set", {}), **entry.get("compute", {})}
        text = ", ".join(f"{HEADINGS.get(name, words(name))} {_given(name, found)}" for name, found in given.items())
        of = ", ".join(str(found) for found in entry.get("where", {}).values())
        line = f"{of}: {text}" if of else text
        if entry["why"].startswith("As above") and told:
            told[-1]["given"].append(line)
        else:
            told.append({"why": entry["why"], "given": [line]})
    return told


def _given(name: str, found: Any) -> str:
    if isinstance(found, str):
        return found.replace(" ** 2", "²").replace(" * ", " × ").replace("_", " ")
    return quantity(found, name) if isinstance(found, float) else f"{found:,}"


def rules_used() -> list[dict[str, str]]:
    """The registry as the page prints it."""
    rows = [(rule.name, rule.severity, rule.meaning) for rule in RULES.values()]
    rows += [(f"claim_{kind.name}", "error", kind.meaning) for kind in CLAIM_KINDS.values()]
    return [{"name": name, "severity": severity, "meaning": meaning} for name, severity, meaning in rows]
