"""Writes the study as resolved.

Output:
    study: study.yaml, the whole config after overlays and normalisation, and the devices that it resolved to.
"""

from pathlib import Path
from typing import Any

import yaml


def main(*, study: Path, spec: dict[str, Any]) -> None:
    resolved = {"config": spec["config"], "devices": spec["devices"]}
    study.write_text(yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True, width=120), encoding="utf-8")


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
