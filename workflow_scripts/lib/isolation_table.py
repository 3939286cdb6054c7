"""Cells in one process for all beside the same cells in a process each, as rows of a table."""

from typing import Any

from workflow_scripts.lib.comparisons import Estimate, ratio, verdict
from workflow_scripts.lib.estimates import estimate

ISOLATION_COLUMNS = (
    "device probe cell model precision execution mode place of status reason together_s together_low_s together_high_s "
    "alone_s alone_low_s alone_high_s time_ratio time_ratio_low time_ratio_high verdict together_first_s alone_first_s "
    "together_peak_allocated_bytes alone_peak_allocated_bytes together_peak_reserved_bytes alone_peak_reserved_bytes "
    "together_peak_process_bytes alone_peak_process_bytes n_together n_alone record"
).split()
PEAKS = ("peak_allocated_bytes", "peak_reserved_bytes")


def isolation_rows(record: dict[str, Any], path: str) -> list[dict[str, Any]]:
    """One row a cell; ratios are one process over a process each, the verdict is of the cell in one process."""
    asked = record["spec"]
    found = (record["result"] or {}).get("rows", [])
    rows = []
    for place, cell in enumerate(asked["cells"], start=1):
        sides = {
            "together": _row(found, cell["id"], of=len(asked["cells"])),
            "alone": _row(found, cell["id"], of=1),
        }
        failed = next((side for side in sides.values() if side.get("status") != "ok"), None)
        row = {
            "device": asked["device"]["id"],
            "probe": record["id"],
            "cell": cell["id"],
            "model": cell["name"],
            "precision": cell["step"]["precision"],
            "execution": cell["step"]["execution"],
            "mode": cell["mode"],
            "place": place,
            "of": len(asked["cells"]),
            "status": "ok" if failed is None else failed.get("status", "error"),
            "reason": "" if failed is None else failed.get("reason", "it left no result"),
            "record": path,
        }
        times = {name: estimate(side.get("samples_s", [])) for name, side in sides.items()}
        for name, side in sides.items():
            time, memory = times[name], side.get("memory") or {}
            first = [*side.get("cold_s", []), *side.get("samples_s", [])]
            row |= {
                f"{name}_s": time.median,
                f"{name}_low_s": time.low,
                f"{name}_high_s": time.high,
                f"{name}_first_s": first[0] if first else None,
                f"n_{name}": time.n or None,
                f"{name}_peak_process_bytes": side.get("peak_process_bytes"),
                **{f"{name}_{peak}": memory.get(peak) for peak in PEAKS},
            }
        if times["together"].median and times["alone"].median:
            sides_s = [
                Estimate(value=times[name].median, low=times[name].low, high=times[name].high, n=1, records=())
                for name in ("together", "alone")
            ]
            compared = ratio(*sides_s)
            row |= {"time_ratio": compared.value, "time_ratio_low": compared.low, "time_ratio_high": compared.high}
            row["verdict"] = verdict(compared.inverse())
        rows.append(row)
    return rows


def _row(found: list[dict[str, Any]], cell: str, of: int) -> dict[str, Any]:
    return next((row for row in found if (row["cell"], row["of"]) == (cell, of)), {})
