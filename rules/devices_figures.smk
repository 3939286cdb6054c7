"""Figures of devices beside each other and of the optimizer sweep, in the way of figures.smk, which lists them all.

Input: runs.csv, curves.csv, optimizer_sweep.csv.
Output: results/{study}/figures/{devices,device_losses,optimizers}.{svg,csv}.
Steps: draw_devices, draw_device_losses, draw_optimizers.
"""


rule draw_devices:
    """Draws training throughput by device and model."""
    input:
        runs="results/{study}/tables/runs.csv",
        findings="results/{study}/findings.json",
    output:
        figure="results/{study}/figures/devices.svg",
        data="results/{study}/figures/devices.csv",
    log:
        "logs/{study}/figures/devices.log",
    params:
        spec=spec("draw_devices"),
    script:
        "../workflow_scripts/draw_devices.py"


rule draw_device_losses:
    """Draws validation loss on every device, over tokens and over seconds."""
    input:
        curves="results/{study}/tables/curves.csv",
    output:
        figure="results/{study}/figures/device_losses.svg",
        data="results/{study}/figures/device_losses.csv",
    log:
        "logs/{study}/figures/device_losses.log",
    params:
        spec=spec("draw_device_losses"),
    script:
        "../workflow_scripts/draw_device_losses.py"


rule draw_optimizers:
    """Draws validation loss over learning rates for each optimizer."""
    input:
        optimizers="results/{study}/tables/optimizer_sweep.csv",
    output:
        figure="results/{study}/figures/optimizers.svg",
        data="results/{study}/figures/optimizers.csv",
    log:
        "logs/{study}/figures/optimizers.log",
    params:
        spec=spec("draw_optimizers"),
    script:
        "../workflow_scripts/draw_optimizers.py"
