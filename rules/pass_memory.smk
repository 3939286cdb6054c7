"""Memory over time: what passes allocate and free, from the probes of kind `memory`.

Input: the probes' records.
Output: results/{study}/tables/memory_passes.csv, memory_blocks.csv, memory_timeline.csv; the figure memory_timeline.
Steps: collect_pass_memory, draw_memory_timeline.
"""

PROBE_TABLES += expand(
    "results/{study}/tables/{table}.csv",
    study=STUDY.name,
    table=["memory_passes", "memory_blocks", "memory_timeline"],
)


rule collect_pass_memory:
    """Gathers what passes allocate over their course."""
    input:
        probes=PROBE_RECORDS,
        recordings=RECORDINGS,
    output:
        memory_passes="results/{study}/tables/memory_passes.csv",
        memory_blocks="results/{study}/tables/memory_blocks.csv",
        memory_timeline="results/{study}/tables/memory_timeline.csv",
    log:
        "logs/{study}/tables/pass_memory.log",
    params:
        spec=spec("collect_pass_memory"),
    script:
        "../workflow_scripts/collect_pass_memory.py"


rule draw_memory_timeline:
    """Draws what passes allocate over their course."""
    input:
        memory_timeline="results/{study}/tables/memory_timeline.csv",
    output:
        figure="results/{study}/figures/memory_timeline.svg",
        data="results/{study}/figures/memory_timeline.csv",
    log:
        "logs/{study}/figures/memory_timeline.log",
    params:
        spec=spec("draw_memory_timeline"),
    script:
        "../workflow_scripts/draw_memory_timeline.py"
