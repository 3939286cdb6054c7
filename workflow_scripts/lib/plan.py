"""What a person is told before, during and after a study: how much there is to do, how far it is, how it went.

The workflow writes the plan when it starts; each timing job reads it. Changes no measured value.
"""

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil

PLAN = Path(".snakemake/assay_plan.json")


def write_plan(cells: Sequence[str]) -> None:
    """Notes which cells are about to be timed, and when this process, which plans and runs the jobs, began."""
    PLAN.parent.mkdir(exist_ok=True)
    started_s = psutil.Process().create_time()
    PLAN.write_text(json.dumps({"started_at_s": started_s, "cells": list(cells)}), encoding="utf-8")


def place_in_plan(record: Path) -> str:
    """Says how far the grid is once this record is written, as in `(cell 12 of 30, about 1:40 left of the grid)`.

    Empty without a plan, or for a cell that is not in it.
    """
    plan = _read_plan()
    if record.as_posix() not in plan["cells"]:
        return ""
    done, n_cells = len(_written(plan["cells"], plan["started_at_s"])), len(plan["cells"])
    left_s = (time.time() - plan["started_at_s"]) / max(done, 1) * (n_cells - done)
    return f"(cell {done} of {n_cells}, about {duration(left_s)} left of the grid)"


def summarise(cells: Sequence[str], runs: Sequence[str], others: Sequence[str]) -> str:
    """Says how a study went: what was measured, what failed, and how much of this run's time went into measuring.

    Args:
        cells: records of cells.
        runs: records of trainings.
        others: all further records of measuring processes. Only their time is told, and none of a check that there was
            nothing to measure for.
    """
    started_s = _read_plan()["started_at_s"]
    now_s = time.time()
    records = _written([*cells, *runs, *others], started_s)
    measuring_s = sum(json.loads(path.read_text(encoding="utf-8")).get("wall_s", 0.0) for path in records)
    sentences = [_outcome(cells, "cells were timed"), _outcome(runs, "runs were trained to their end")]
    if records:
        share = measuring_s / (now_s - started_s)
        sentences.append(f"measuring processes had {share:.0%} of {duration(now_s - started_s)}")
    return "; ".join(sentence for sentence in sentences if sentence) or "nothing was to be measured here"


def duration(seconds: float) -> str:
    """Spells a duration for a person: `1:40`, `1:02:03`."""
    minutes, whole = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{whole:02}" if minutes >= 60 else f"{minutes}:{whole:02}"


def _outcome(records: Sequence[str], what: str) -> str:
    statuses = Counter(json.loads(Path(path).read_text(encoding="utf-8"))["status"] for path in records)
    n_ok, n_all = statuses.pop("ok", 0), len(records)
    others = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
    return f"{n_ok} of {n_all} {what}{f' ({others})' if others else ''}" if n_all else ""


def _read_plan() -> dict:
    if not PLAN.exists():
        return {"started_at_s": time.time(), "cells": []}
    return json.loads(PLAN.read_text(encoding="utf-8"))


def _written(records: Sequence[str], since_s: float) -> list[Path]:
    return [path for path in map(Path, records) if path.exists() and path.stat().st_mtime >= since_s]
