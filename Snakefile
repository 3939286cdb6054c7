"""Assay: what a language model costs to train on each device you have, and what to make of it.

Path grammar, where {study} is the config's name, {device} a local device, {name} a role or model that is trained:
    results/{study}/study.yaml                                  the whole config as resolved
    results/{study}/corpus/{tokens.bin,corpus.json}
    results/{study}/devices/{device}/{device,calibration}.json
    results/{study}/devices/{device}/cells/{cell}.json          one timed configuration
    results/{study}/devices/{device}/{memory,timers}/{cell}.json   what a cell's step takes; what other timers say of it
    results/{study}/devices/{device}/probes/{probe}.json        what a question of its own found
    results/{study}/devices/{device}/probes/{probe}/*.pickle    CUDA's memory snapshots of a probe of memory
    results/{study}/{cost_model,selection,recommendation}.json
    results/{study}/devices/{device}/recommended.json            one step of what is recommended there
    results/{study}/devices/{device}/runs/{run}/{run.json,metrics.csv,model.safetensors,samples.txt}
    results/{study}/devices/{device}/profiles/{name}/{profile.json,operators.csv,trace.json.gz}
    results/{study}/tables/*.csv
    results/{study}/findings.json
    results/{study}/figures/*.{svg,csv}
    results/{study}/report.html
    recordings/{study}/{device}.zip                             what a device left, packed for other machines
    results/{study}/devices/{device}/recording.json              ... and what of this machine's is in it
    logs/                                                       mirrors results/
"""

from snakemake.utils import min_version

min_version("9.27")


workdir: workflow.basedir


configfile: "config.yaml"


include: "rules/study.smk"
include: "rules/chosen.smk"
include: "rules/asked_probes.smk"
include: "rules/corpus.smk"
include: "rules/devices.smk"
include: "rules/grid.smk"
include: "rules/memory.smk"
include: "rules/timers.smk"
include: "rules/selection.smk"
include: "rules/advised.smk"
include: "rules/recommendation.smk"
include: "rules/training.smk"
include: "rules/profile.smk"
include: "rules/planned.smk"
include: "rules/plan.smk"
include: "rules/tables.smk"
include: "rules/fits.smk"
include: "rules/prediction.smk"
include: "rules/probes.smk"
include: "rules/pass_memory.smk"
include: "rules/sizes.smk"
include: "rules/experiments.smk"
include: "rules/recording.smk"
include: "rules/audit.smk"
include: "rules/comparisons.smk"
include: "rules/published.smk"
include: "rules/figures.smk"
include: "rules/probe_figures.smk"
include: "rules/experiment_figures.smk"
include: "rules/report.smk"


# Every artifact but the weights is listed, so that nothing failed stays hidden behind an older file downstream.
rule all:
    default_target: True
    input:
        STUDY_FILE,
        CORPUS,
        DEVICES,
        CALIBRATIONS,
        CELLS,
        MEMORY,
        TIMERS,
        PROBE_RECORDS,
        SELECTION,
        CANDIDATES,
        RECOMMENDATION,
        CHECKS,
        RECOMMENDATION_TABLES,
        trained,
        profiled,
        TABLES,
        PROBE_TABLES,
        SIZE_TABLES,
        EXPERIMENT_TABLES,
        COMPARISON_TABLES,
        PUBLISHED_TABLES,
        FINDINGS,
        FIGURES,
        REPORT,
