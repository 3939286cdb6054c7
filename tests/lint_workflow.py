"""Runs Snakemake's own lint and fails on any finding but one.

The lint asks that each rule name a conda environment or a container. Assay's environment is the one that runs it,
pinned in requirements.txt: a container that nobody uses would say less, not more.
"""

import re
import subprocess
import sys
from pathlib import Path

NOT_APPLICABLE = "Specify a conda environment or container for each rule."


def main() -> int:
    snakemake = Path(sys.executable).with_name("snakemake")
    lint = subprocess.run([snakemake, "--lint"], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    said = lint.stdout + lint.stderr
    findings = re.findall(r"^    \* (.+?):?$", said, re.MULTILINE)
    if lint.returncode and not findings:  # it did not come to linting
        sys.stderr.write(said)
        return 1
    counted = [finding for finding in findings if finding != NOT_APPLICABLE]
    sys.stderr.write("".join(f"snakemake --lint: {finding}\n" for finding in counted))
    return bool(counted)


if __name__ == "__main__":
    sys.exit(main())
