"""What the steps of each treatment allocate, as memray counted it, as rows of a table."""

import statistics
from typing import Any

from workflow_scripts.lib.experiments import BASELINE

ALLOCATIONS_COLUMNS = (
    "device probe name treatment levels status reason allocations allocations_least allocations_most bytes "
    "peak_heap_bytes data_bytes n_steps allocations_ratio bytes_ratio peak_ratio memray record"
).split()
UNCOUNTED = "it left no result"
_RATIOS = {"allocations": "allocations_ratio", "bytes": "bytes_ratio", "peak_heap_bytes": "peak_ratio"}


def allocation_rows(record: dict[str, Any], path: str, levels: dict[str, str]) -> list[dict[str, Any]]:
    """One row a treatment.

    Args:
        record: of a probe of kind `allocations`.
        path: the record's.
        levels: by treatment, its levels as in runs.csv.

    Returns:
        Per step: `allocations` (calls that allocate) and `bytes`, medians over `n_steps` steps; `peak_heap_bytes` from
        before the model was built, of which `data_bytes` hold tokens and windows; each over the baseline's.
    """
    asked, counted = record["spec"], {row["treatment"]: row for row in (record["result"] or {}).get("rows", [])}
    rows = []
    for treated in asked["treated"]:
        found = counted.get(treated["id"], {"status": "error", "reason": UNCOUNTED})
        row = {
            "device": asked["device"]["id"],
            "probe": record["id"],
            "name": asked["name"],
            "treatment": treated["id"],
            "levels": levels.get(treated["id"]),
            "status": found["status"],
            "reason": found["reason"],
            "record": path,
        }
        if found["status"] == "ok":
            counts = found["allocations"]
            row |= {"allocations": statistics.median(counts), "bytes": statistics.median(found["bytes"])}
            row |= {"allocations_least": min(counts), "allocations_most": max(counts), "n_steps": len(counts)}
            row |= {name: found[name] for name in ("peak_heap_bytes", "data_bytes", "memray")}
        rows.append(row)
    baseline = next((row for row in rows if row["treatment"] == BASELINE), {})
    for row in rows:
        row |= {
            ratio: row[name] / baseline[name]
            for name, ratio in _RATIOS.items()
            if row.get(name) is not None and baseline.get(name)
        }
    return rows
