"""Options that benchmarks have in common."""

import argparse
from pathlib import Path

from workflow_scripts.lib.host import available_cores


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Makes a parser of `--threads`, by default as many as there are cores, and `--json`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=available_cores()[0], help="torch's threads")
    parser.add_argument("--json", type=Path, help="where the figures go")
    return parser
