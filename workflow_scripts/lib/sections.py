"""The content of the report, section by section, as plain values for its templates."""

import dataclasses
import datetime
import re
from collections.abc import Iterable
from html import unescape
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from workflow_scripts.lib import claims as claim_texts
from workflow_scripts.lib import report_tables
from workflow_scripts.lib.claims import Claim
from workflow_scripts.lib.comparisons import THRESHOLDS
from workflow_scripts.lib.page import Table, plain, record_link, table
from workflow_scripts.lib.quantities import (
    count,
    is_missing,
    listing,
    percent,
    plural,
    quantity,
    span,
    unit_for,
)
from workflow_scripts.lib.record_files import archive_of, read_text

SHOWN_RECORDS = 6
SHOWN_OPERATORS = 12
SHOWN_FINDINGS = 3  # of one rule that stand open
ORDER = [
    "n_params",
    "model",
    "name",
    "sequence_length",
    "batch_size",
    "precision",
    "execution",
    "mode",
    "process",
    "seed",
]
SHOWN_SAMPLE = 700  # characters of a sample that stand open on the page
SHOWN_SAMPLES = 8  # that stand open
ANSWER = (
    "training",
    "devices",
    "loss",
    "recommendation",
)  # topics that answer the first question; the others are the grid's
SEVERITIES = ("error", "warning", "note")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure for the page: the SVG, the sentence that says what it shows, its numbers; or why there is nothing."""

    name: str
    svg: Markup
    caption: str
    data: str
    nothing: str


def figure(path: Path) -> Figure:
    """Takes a figure that `plotting.save` wrote, whose root element carries its sentence."""
    svg = path.read_text(encoding="utf-8")
    root = svg[: svg.index(">")]
    said = {name: unescape(text) for name, text in re.findall(r'data-(caption|nothing)="([^"]*)"', root)}
    return Figure(
        name=path.stem, svg=Markup(svg), caption=said.get("caption", ""), nothing=said.get("nothing", ""),
        data=f"{path.parent.name}/{path.stem}.csv",
    )  # fmt: skip


def answer(claims: Iterable[Claim], study: str) -> list[dict]:
    """The claims as the page prints them, each with links to the first of its records."""
    printed = []
    for claim in claims:
        links = [link for record in claim.records if (link := record_link(record, study))]
        links = list(dict.fromkeys(links))
        shown = [{"href": link, "text": _record_name(link)} for link in links[:SHOWN_RECORDS]]
        more = len(links) - len(shown)
        source = "runs" if claim.topic in ("training", "devices", "loss") else "cells"
        printed.append(
            {
                "claim": claim,
                "links": shown,
                "more": f"{more:,} more" if more > 0 else "",
                "table": f"tables/{source}.csv",
            }
        )
    return printed


def _record_name(link: str) -> str:
    parts = link.split("/")
    name = parts[-2] if parts[-1] == "run.json" else parts[-1].removesuffix(".json")
    return f"{parts[1]}/{name}" if parts[0] == "devices" and len(parts) > 2 else name


def by_device(
    rows: pd.DataFrame, columns: list, devices: dict[str, str], study: str, identity: str, found: list[dict]
) -> list[tuple[str, str, Table]]:
    """One table a device, each row with the rules that have a doubt about it: (device, its hardware's name, table)."""
    if rows.empty:
        return []
    order = [key for key in ORDER if key in rows]
    rows = rows.assign(doubts=_doubts(rows, identity, found)).sort_values(order, kind="stable")
    return [
        (str(device), devices.get(device, ""), table(group, columns, study))
        for device, group in rows.groupby("device", sort=False)
    ]


def _doubts(rows: pd.DataFrame, identity: str, found: list[dict]) -> list[str | None]:
    grave = [finding for finding in found if finding["severity"] != "note"]
    told = []
    for names in claim_texts.names_of_rows(rows, identity):
        rules = [finding["rule"] for finding in grave if claim_texts.is_subject(finding["subject"], names)]
        told.append(", ".join(dict.fromkeys(rules)) or None)
    return told


def profile(operators: pd.DataFrame, study: str) -> list[tuple[str, Table, int]]:
    """The largest operators of each profile: (title, table, how many more the CSV has)."""
    if operators.empty:
        return []
    printed = []
    for (device, name), group in operators.groupby(["device", "name"], sort=False):
        group = group.sort_values("share", ascending=False, kind="stable")
        shown = table(group.head(SHOWN_OPERATORS), report_tables.OPERATORS, study)
        printed.append((f"{name} on {device}", shown, max(0, len(group) - SHOWN_OPERATORS)))
    return printed


def samples(paths: Iterable[Path], runs: pd.DataFrame) -> dict[str, list[dict]]:
    """The text that each run's model wrote, with the loss that it had reached: first seeds first, the rest folded."""
    runs = runs.sort_values("seed", kind="stable") if len(runs) else runs
    losses = {(row["device"], row["run"]): row.get("final_val_loss") for row in runs.to_dict("records")}
    written = []
    order = list(losses)
    places = {path: (path.parents[2].name, path.parent.name) for path in paths}
    places = {path: place for path, place in places.items() if archive_of(path) is None or place in losses}
    for path in sorted(places, key=lambda path: order.index(places[path]) if places[path] in order else len(order)):
        device, run = places[path]
        text = plain(read_text(path)).strip()
        if text:
            loss = quantity(losses.get((device, run)), "nats per token", 4)
            rest = text[SHOWN_SAMPLE:]
            recording = archive_of(path)
            link = f"devices/{device}/runs/{run}/{path.name}" if recording is None else f"../../{recording.as_posix()}"
            written.append(
                {"run": run, "device": device, "text": text[:SHOWN_SAMPLE], "rest": rest, "loss": loss, "link": link}
            )
    return {"open": written[:SHOWN_SAMPLES], "more": written[SHOWN_SAMPLES:]} if written else {}


def findings(found: list[dict]) -> dict:
    """The audit's findings by rule, gravest first: what each saw of whom, the first few open and the rest folded."""
    groups: dict[tuple, dict] = {}
    for each in sorted(found, key=lambda finding: (SEVERITIES.index(finding["severity"]), finding["rule"])):
        key = (each["severity"], each["rule"], each["advice"])
        group = groups.setdefault(key, {"severity": key[0], "rule": key[1], "advice": plain(key[2]), "seen": []})
        group["seen"].append({"subject": plain(each["subject"]), "message": plain(each["message"])})
    by_severity = [sum(each["severity"] == severity for each in found) for severity in SEVERITIES]
    counted = [plural(n, severity) for n, severity in zip(by_severity, SEVERITIES, strict=True) if n]
    split = [{**g, "open": g["seen"][:SHOWN_FINDINGS], "more": g["seen"][SHOWN_FINDINGS:]} for g in groups.values()]
    return {"groups": split, "summary": listing(counted)}


def ceilings(rows: pd.DataFrame, study: str) -> Table:
    """What the devices can do at best, each value in its own unit."""
    printed = rows.assign(
        quantity=rows.quantity.astype(object).map(lambda name: str(name).replace("_", " ")),
        value=[quantity(row.value, row.unit) for row in rows.itertuples()],
        interval=[_interval(row.low, row.high, row.unit) for row in rows.itertuples()],
        datasheet=[
            "not stated" if is_missing(r.datasheet) else quantity(r.datasheet, r.unit) for r in rows.itertuples()
        ],
        precision=rows.precision.astype(object).where(rows.precision.notna(), "–"),
    )
    return table(printed, report_tables.CEILINGS, study)


def _interval(low: float | None, high: float | None, unit: str) -> str:
    scale, name = unit_for([high], unit)
    return "spread unknown" if is_missing(low) or is_missing(high) else f"{span(low, high, scale)} {name}"


def measured_on(*tables: pd.DataFrame) -> str:
    """The days on which the records were made: "4 March 2025", or the first and the last."""
    stamps = pd.concat([t["started_at"].dropna() for t in tables if "started_at" in t] or [pd.Series(dtype=object)])
    days = sorted({datetime.datetime.fromisoformat(str(stamp)).date() for stamp in stamps})
    if not days:
        return "dates not recorded"
    first, last = (f"{day.day}\u00a0{day:%B\u00a0%Y}" for day in (days[0], days[-1]))
    if first == last:
        return first
    same_month = (days[0].year, days[0].month) == (days[-1].year, days[-1].month)
    return f"{days[0].day}–{last}" if same_month else f"{first} to {last}"


def corpus(facts: dict) -> list[tuple[str, str]]:
    """What the text is that was trained on."""
    splits = {name: split["stop"] - split["start"] for name, split in facts["splits"].items()}
    return [
        ("text", plain(facts["source"])),
        ("characters", count(facts["n_characters"])),
        ("tokenizer", f"{facts['tokenizer']['kind']}, {count(facts['vocab_size'])} entries"),
        ("tokens", ", ".join(f"{count(n)} {name}" for name, n in splits.items())),
        ("SHA-256 of the text", facts["source_sha256"]),
        ("SHA-256 of the tokens", facts["tokens_sha256"]),
    ]


def provenance(*tables: pd.DataFrame) -> list[tuple[str, str]]:
    """Code and commit that measured, as far as the tables tell."""
    told = []
    for column, title in (("code", "digest of the measuring code"), ("commit", "commit")):
        values = {str(v) for t in tables if column in t for v in t[column].dropna()}
        if values:
            told.append((title, ", ".join(sorted(values))))
    return told


def method() -> dict[str, str]:
    """The numbers that the description of the method names."""
    return {
        "interval": percent(THRESHOLDS["interval"]),
        "same": percent(THRESHOLDS["same"]),
        "floor": percent(THRESHOLDS["noise_floor"]),
        "seeds": count(THRESHOLDS["seeds"]),
        "gib": f"GiB is {2**30:,} bytes",
    }


def counts(cells: pd.DataFrame, runs: pd.DataFrame) -> str:
    """How much was measured, in a few words."""
    told = [
        plural(int((rows.status == "ok").sum()), noun)
        for rows, noun in ((cells, "cell"), (runs, "training run"))
        if len(rows)
    ]
    return listing(told) or "nothing"


def failures(cells: pd.DataFrame, runs: pd.DataFrame) -> list[str]:
    """One sentence each for cells and runs that have no measurement."""
    sentences = (claim_texts.failures(cells, "cell"), claim_texts.failures(runs, "training run"))
    return [sentence for sentence in sentences if sentence]
