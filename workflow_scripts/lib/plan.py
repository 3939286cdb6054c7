"""What a person is told before and during the grid: how much there is to measure, how far it is, how long it will take.

The workflow writes the plan when it starts; each measuring job reads it. Changes no measured value.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path

PLAN = Path(".snakemake/assay_plan.json")


def write_plan(cells: Sequence[str]) -> None:
    """Notes which cells are about to be measured, and when this began."""
    PLAN.parent.mkdir(exist_ok=True)
    PLAN.write_text(json.dumps({"started_at_s": time.time(), "cells": list(cells)}), encoding="utf-8")


def place_in_plan(record: Path, now_s: float | None = None) -> str:
    """Says how far the grid is once this record is written, as in `(cell 12 of 30, about 1:40 left of the grid)`.

    Empty without a plan, or for a cell that is not in it.
    """
    if not PLAN.exists():
        return ""
    plan = json.loads(PLAN.read_text(encoding="utf-8"))
    if record.as_posix() not in plan["cells"]:
        return ""
    started_s, n_cells = plan["started_at_s"], len(plan["cells"])
    done = sum(path.exists() and path.stat().st_mtime >= started_s for path in map(Path, plan["cells"]))
    elapsed_s = (now_s or time.time()) - started_s
    left_s = elapsed_s / max(done, 1) * (n_cells - done)
    return f"(cell {done} of {n_cells}, about {duration(left_s)} left of the grid)"


def duration(seconds: float) -> str:
    """Spells a duration for a person: `1:40`, `1:02:03`."""
    minutes, whole = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{whole:02}" if minutes >= 60 else f"{minutes}:{whole:02}"
