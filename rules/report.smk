"""The report: one HTML file with everything that a person wants to know, and links to the rest.

Input: tables, selection, cost model, corpus, findings, samples, figures; templates and style sheet.
Output: results/{study}/report.html.
Steps: render_report.
"""

from workflow_scripts.lib.plan import duration, summarise, write_plan

REPORT = f"results/{STUDY.name}/report.html"


rule render_report:
    """Renders the report."""
    input:
        tables=[
            *TABLES,
            *RECOMMENDATION_TABLES,
            *PROBE_TABLES,
            *SIZE_TABLES,
            *EXPERIMENT_TABLES,
            *COMPARISON_TABLES,
            *PUBLISHED_TABLES,
        ],
        selection=SELECTION,
        cost_model="results/{study}/cost_model.json",
        corpus="results/{study}/corpus/corpus.json",
        findings="results/{study}/findings.json",
        study="results/{study}/study.yaml",
        samples=run_files("samples.txt"),
        recordings=RECORDINGS,
        figures=expand("results/{{study}}/figures/{figure}.svg", figure=FIGURE_NAMES),
        templates=[
            "report/report.html.j2",
            "report/parts.html.j2",
            "report/memory.html.j2",
            "report/devices.html.j2",
            "report/trained.html.j2",
            "report/prediction.html.j2",
            "report/selection.html.j2",
            "report/recommendation.html.j2",
            "report/experiments.html.j2",
            "report/probes.html.j2",
            "report/sizes.html.j2",
            "report/published_beside.html.j2",
        ],
        style="report/style.css",
    output:
        report="results/{study}/report.html",
    log:
        "logs/{study}/report.log",
    params:
        spec=spec("render_report", study=STUDY.name),
    script:
        "../workflow_scripts/render_report.py"


onstart:
    if workflow.local_exec:
        # With its limit on jobs per second the engine looks again every second, once for each job that has ended: at the
        # end of a study a fifth of a core, taken from what is measured. Jobs that take the whole machine need no limit.
        workflow.scheduler.job_rate_limiter = None
    planned = [
        str(job.output.record)
        for job in workflow.dag.needrun_jobs()
        if job.rule.name == "benchmark_cell"
    ]
    write_plan(planned)
    longest = duration(
        len(planned) * STUDY.config["grid"]["measure"]["max_seconds"]
    )
    logger.info(
        f"Study {STUDY.name} on {', '.join(STUDY.devices) or 'recorded devices'}: {len(planned)} of {len(CELLS)} cells to time "
        f"(at most {longest} of sampling), {len(STUDY.runs) * len(STUDY.devices)} runs in the study."
    )


onsuccess:
    if any(job.rule.name == "render_report" for job in workflow.dag.jobs):
        runs, profiles = run_files("run.json")(None), profile_files("profile.json")(
            None
        )
        others = [
            *CALIBRATIONS,
            *MEMORY,
            *TIMERS,
            *PROBE_RECORDS,
            *CHECKS,
            *profiles,
        ]
        logger.info(f"Study {STUDY.name}: {summarise(CELLS, runs, others)}.")
        logger.info(f"Read {REPORT}")
