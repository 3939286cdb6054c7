"""Runs Snakemake's own lint and fails on any finding but one.

The lint asks that each rule name a conda environment or a container. Assay's environment is the one that runs it,
pinned in requirements.txt: a container that nobody uses would say less, not more.
"""

import json
import subprocess
import sys
from pathlib import Path

NOT_APPLICABLE = "Specify a conda environment or container for each rule."


def main() -> int:
    snakemake = Path(sys.executable).with_name("snakemake")
    lint = subprocess.run([snakemake, "--lint", "json"], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    if not lint.stdout.strip().startswith("{"):
        sys.stderr.write(lint.stderr)
        return 1
    findings = [
        f"{place.get('for', '')} {lint['title']}"
        for place in [*json.loads(lint.stdout).get("rules", []), *json.loads(lint.stdout).get("snakefiles", [])]
        for lint in place["lints"]
        if lint["title"] != NOT_APPLICABLE
    ]
    sys.stderr.write("".join(f"{finding}\n" for finding in findings))
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
