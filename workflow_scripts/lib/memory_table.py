"""The memory of steps as rows of a table, and as what a timed cell's row lacks."""

from pathlib import Path
from typing import Any

from workflow_scripts.lib.gpu import Gpu
from workflow_scripts.lib.memory_model import estimate_memory
from workflow_scripts.lib.memory_phases import PHASES
from workflow_scripts.lib.records import read_record
from workflow_scripts.lib.specs import MemorySpec, from_json

MEMORY_COLUMNS = (
    "device cell status reason peak_allocated_bytes forward_peak_bytes backward_peak_bytes optimizer_peak_bytes "
    "predicted_peak_bytes predicted_forward_bytes predicted_backward_bytes predicted_optimizer_bytes data_bytes "
    "footprint_bytes footprint_data_bytes footprint_status peak_reserved_bytes process_device_bytes "
    "device_used_bytes memory_method footprint_method started_at record"
).split()


def memory_row(path: Path) -> dict[str, Any]:
    """The row of a memory record, in bytes.

    What is predicted holds `data_bytes` too, where the device's allocator gave them: `predicted_peak_bytes` stands
    beside `peak_allocated_bytes`, `predicted_forward_bytes` beside `forward_peak_bytes` and so on. `footprint_bytes`
    holds `footprint_data_bytes`.
    """
    record = read_record(path)
    spec, result = from_json(MemorySpec, record["spec"]), record["result"] or {}
    phases, footprint = result.get("phases") or {}, result.get("footprint") or {}
    data = result.get("data_bytes")
    predicted = estimate_memory(
        spec.model,
        spec.step,
        spec.optimizer,
        spec.device.type,
        resident_bytes=data or 0,
        gpu=Gpu.of(record["environment"]),
        threads=spec.device.threads,
    )
    return {
        "device": spec.device.id,
        "cell": spec.id,
        "status": record["status"],
        "reason": record["reason"],
        "peak_allocated_bytes": result.get("peak_allocated_bytes"),
        **{f"{phase}_peak_bytes": phases.get(phase) for phase in PHASES},
        "predicted_peak_bytes": predicted.peak_bytes,
        **{f"predicted_{phase}_bytes": predicted.phases[phase] for phase in PHASES},
        "data_bytes": data,
        "footprint_bytes": footprint.get("footprint_bytes"),
        "footprint_data_bytes": footprint.get("data_bytes"),
        "footprint_status": footprint.get("status"),
        **{name: result.get(name) for name in ("peak_reserved_bytes", "process_device_bytes", "device_used_bytes")},
        "memory_method": result.get("method"),
        "footprint_method": footprint.get("method"),
        "started_at": record["started_at"],
        "record": path.as_posix(),
    }


def fill_memory(cells: list[dict[str, Any]], memory: list[dict[str, Any]]) -> None:
    """Gives rows of timed cells the peak that was measured apart; what a timed process counted itself stays."""
    found = {(row["device"], row["cell"]): row for row in memory if row["status"] == "ok"}
    for cell in cells:
        apart = found.get((cell["device"], cell["cell"]))
        if apart is not None and cell["peak_allocated_bytes"] is None:
            cell["peak_allocated_bytes"] = apart["peak_allocated_bytes"]
            cell["memory_method"] = f"{apart['memory_method']}, in a process of its own"
