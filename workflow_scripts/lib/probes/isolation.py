"""The same cells in one process, one after another, and each in a process of its own.

Between two cells the caches are emptied and the peaks start anew, as a careful script does; what is left is what only
the end of a process undoes: what was loaded, tuned and compiled, what still holds memory, where memory lies.
"""

from collections.abc import Callable
from typing import Any

from workflow_scripts.lib.cell import measure_cell
from workflow_scripts.lib.outcome import classify
from workflow_scripts.lib.probe_specs import IsolationProbe, probe_from_json
from workflow_scripts.lib.process_memory import peak_process_bytes
from workflow_scripts.lib.specs import to_json

KEPT = ("cold_s", "samples_s", "block_size", "stop", "anchor_s", "memory", "observed")

Send = Callable[[dict[str, Any]], None]


def probe(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Measures the probe's cells in this process, in their order.

    Returns:
        `rows`: `cell` (its id), `place` from 1 `of` so many in this process, `status`, `reason`, `peak_process_bytes`
        (of the process so far), and of what `measure_cell` gives the keys of `KEPT`, in s and bytes.
    """
    spec = probe_from_json(arguments["probe"])
    assert isinstance(spec, IsolationProbe)
    rows: list[dict[str, Any]] = []
    for place, cell in enumerate(spec.cells, start=1):
        try:
            measured = measure_cell({**arguments, "cell": to_json(cell)}, _keep_nothing)
            found = {"status": "ok", "reason": "", **{key: measured[key] for key in KEPT}}
        except Exception as error:  # a cell that fails leaves the others alone, as far as one process can
            status, reason = classify(error)
            found = {"status": status, "reason": reason}
        row = {"cell": cell.id, "place": place, "of": len(spec.cells), **found}
        rows.append(row | {"peak_process_bytes": peak_process_bytes()})
        send({"partial": {"rows": rows}})
    return {"rows": rows}


def _keep_nothing(message: dict[str, Any]) -> None:
    """Takes a cell's partial result; only whole cells are kept."""
