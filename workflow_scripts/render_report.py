"""Renders the report: one HTML file that needs no network and no script.

Inputs: the study's tables (CSV), those of the recommendation (or none), selection.json (or none), cost_model.json,
corpus.json, findings.json, study.yaml, the samples of text, the figures (SVG, set into the page), the
templates and the style sheet.
Output: report.html, whose links to records, tables and data of figures are relative to it.
"""

import json
from pathlib import Path

from workflow_scripts.lib import (
    claims,
    csv_tables,
    devices_section,
    experiments_section,
    memory_section,
    page,
    prediction_section,
    probes_section,
    recommendation_section,
    report_tables,
    sections,
    selection_section,
    training_section,
)
from workflow_scripts.lib.record_files import recorded


def main(
    *, cells: Path, runs: Path, devices: Path, operators: Path, processes: Path, ceilings: Path, memory: Path, fits: Path,
    timers: Path, cost_model: Path, corpus: Path, findings: Path, study: Path, selection: list[Path],
    recommendation: list[Path], samples: list[Path], recordings: list[Path], probe_tables: list[Path],
    experiment_tables: list[Path],
    comparison_tables: list[Path], figures: list[Path], templates: list[Path], style: Path, report: Path, spec: dict,
) -> None:  # fmt: skip
    """Renders `report`; `templates` names the page first, then its parts; `spec["study"]` is the study's name."""
    name = spec["study"]
    tables = {
        title: csv_tables.read(path)
        for title, path in {
            "cells": cells, "runs": runs, "devices": devices, "operators": operators, "processes": processes,
        }.items()
    }  # fmt: skip
    chosen = json.loads(selection[0].read_text(encoding="utf-8")) if selection else {}
    model = json.loads(cost_model.read_text(encoding="utf-8"))
    found = json.loads(findings.read_text(encoding="utf-8"))
    hardware = dict(zip(tables["devices"].device, tables["devices"].name, strict=True))
    said = claims.write_claims(
        cells=tables["cells"], runs=tables["runs"], devices=tables["devices"], processes=tables["processes"],
        selection=chosen, cost_model=model, findings=found,
    )  # fmt: skip
    advice, batches = recommendation_section.tables(recommendation)
    said += [claims.judged(claim, found) for claim in recommendation_section.claims(advice, hardware)]
    compared = {path.stem: csv_tables.read(path) for path in comparison_tables}
    free = [claim for claim in said if claim.withheld is None]
    html = page.environment(templates[0].parent).get_template(templates[0].name).render(
        study=name,
        style=page.Markup(style.read_text(encoding="utf-8")),
        hardware=hardware,
        measured_on=sections.measured_on(tables["cells"], tables["runs"]),
        counts=sections.counts(tables["cells"], tables["runs"]),
        failures=sections.failures(tables["cells"], tables["runs"]),
        answer=sections.answer([claim for claim in free if claim.topic in sections.ANSWER], name),
        effects=sections.answer([claim for claim in free if claim.topic not in sections.ANSWER], name),
        withheld=[claim for claim in said if claim.withheld is not None],
        figures={path.stem: sections.figure(path) for path in figures},
        findings=sections.findings(found),
        cells=sections.by_device(tables["cells"], report_tables.CELLS, hardware, name, "cell", found),
        processes=page.table(tables["processes"], report_tables.PROCESSES, name),
        prediction=prediction_section.section(tables["cells"], csv_tables.read(ceilings), model, hardware, name),
        memory=memory_section.section(csv_tables.read(memory), csv_tables.read(fits), name),
        timers=page.table(csv_tables.read(timers), report_tables.TIMERS, name),
        selection=selection_section.section(chosen, name),
        beside=devices_section.section(compared["device_comparison"], tables["devices"], name, found),
        trained=training_section.section(compared, name),
        recommendation=recommendation_section.section(advice, batches, hardware, name),
        runs=sections.by_device(tables["runs"], report_tables.RUNS, hardware, name, "run", found),
        samples=sections.samples([*samples, *recorded(recordings, "runs/*/samples.txt")], tables["runs"]),
        profile=sections.profile(tables["operators"], name),
        experiments=experiments_section.section(experiments_section.tables(experiment_tables), name),
        probes=probes_section.section({path.stem: csv_tables.read(path) for path in probe_tables}, name),
        devices=page.table(tables["devices"], report_tables.DEVICES, name),
        ceilings=sections.ceilings(csv_tables.read(ceilings), name),
        corpus=sections.corpus(json.loads(corpus.read_text(encoding="utf-8"))),
        provenance=sections.provenance(tables["cells"], tables["runs"]),
        config=page.plain(study.read_text(encoding="utf-8")),
        method=sections.method(),
    )  # fmt: skip
    report.write_text(html, encoding="utf-8")


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
