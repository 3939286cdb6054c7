"""Renders the report: one HTML file that needs no network and no script.

Inputs: all tables of the study (CSV), selection.json (or none), cost_model.json, corpus.json, findings.json, the study
as resolved, the samples of text, the figures (SVG, set into the page), the templates and the style sheet.
Output: report.html, whose links to records, tables and data of figures are relative to it.
"""

import json
from pathlib import Path

import pandas as pd

from workflow_scripts.lib import (
    claims,
    csv_tables,
    devices_section,
    experiments_section,
    memory_section,
    page,
    prediction_section,
    probes_section,
    published_section,
    recommendation_section,
    report_tables,
    sections,
    selection_section,
    sizes_section,
    training_section,
)
from workflow_scripts.lib.record_files import recorded


def main(
    *, tables: list[Path], selection: list[Path], cost_model: Path, corpus: Path, findings: Path, study: Path,
    samples: list[Path], recordings: list[Path], figures: list[Path], templates: list[Path], style: Path, report: Path,
    spec: dict,
) -> None:  # fmt: skip
    """Renders `report`; `templates` names the page first, then its parts; `spec["study"]` is the study's name."""
    name, found = spec["study"], json.loads(findings.read_text(encoding="utf-8"))
    known = {path.stem: csv_tables.read(path) for path in tables}
    cells, runs, devices = known["cells"], known["runs"], known["devices"]
    chosen = json.loads(selection[0].read_text(encoding="utf-8")) if selection else {}
    model = json.loads(cost_model.read_text(encoding="utf-8"))
    hardware = dict(zip(devices.device, devices.name, strict=True))
    said = claims.write_claims(
        cells=cells, runs=runs, devices=devices, processes=known["processes"],
        selection=chosen, cost_model=model, findings=found,
    )  # fmt: skip
    advice, batches = (known.get(table, pd.DataFrame()) for table in ("recommendation", "batches"))
    said += [claims.judged(claim, found) for claim in recommendation_section.claims(advice, hardware)]
    free = [claim for claim in said if claim.withheld is None]
    html = page.environment(templates[0].parent).get_template(templates[0].name).render(
        study=name,
        style=page.Markup(style.read_text(encoding="utf-8")),
        hardware=hardware,
        measured_on=sections.measured_on(cells, runs),
        counts=sections.counts(cells, runs),
        failures=sections.failures(cells, runs),
        answer=sections.answer([claim for claim in free if claim.topic in sections.ANSWER], name),
        effects=sections.answer([claim for claim in free if claim.topic not in sections.ANSWER], name),
        withheld=[claim for claim in said if claim.withheld is not None],
        figures={path.stem: sections.figure(path) for path in figures},
        findings=sections.findings(found),
        cells=sections.by_device(cells, report_tables.CELLS, hardware, name, "cell", found),
        processes=page.table(known["processes"], report_tables.PROCESSES, name),
        prediction=prediction_section.section(cells, known["ceilings"], model, hardware, name),
        memory=memory_section.section(known["memory"], known["fits"], name),
        timers=page.table(known["timers"], report_tables.TIMERS, name),
        selection=selection_section.section(chosen, name),
        beside=devices_section.section(known["device_comparison"], devices, name, found),
        trained=training_section.section(known, name),
        recommendation=recommendation_section.section(advice, batches, hardware, name),
        runs=sections.by_device(runs, report_tables.RUNS, hardware, name, "run", found),
        samples=sections.samples([*samples, *recorded(recordings, "runs/*/samples.txt")], runs),
        profile=sections.profile(known["operators"], name),
        experiments=experiments_section.section(known, name),
        probes=probes_section.section(known, name),
        sizes=sizes_section.section(known, hardware, name),
        published=published_section.section(known, hardware, name),
        devices=page.table(devices, report_tables.DEVICES, name),
        ceilings=sections.ceilings(known["ceilings"], name),
        corpus=sections.corpus(json.loads(corpus.read_text(encoding="utf-8"))),
        provenance=sections.provenance(cells, runs),
        config=page.plain(study.read_text(encoding="utf-8")),
        method=sections.method(),
    )  # fmt: skip
    report.write_text(html, encoding="utf-8")


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
