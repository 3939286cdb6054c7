"""What single training steps allocate on the heap under each treatment, counted by memray.

memray sees every call of the C library's allocators in this process, those of torch's CPU tensors among them. It slows
what it watches, so nothing here is timed. Small objects that Python keeps in pools of its own are no calls, and what it
maps for a pool, or from a file, is not counted.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from workflow_scripts.lib.cell import build_step
from workflow_scripts.lib.memory_probe import warm_up
from workflow_scripts.lib.outcome import Unavailable, classify
from workflow_scripts.lib.probe_specs import AllocationsProbe, probe_from_json
from workflow_scripts.lib.specs import MemorySpec

Send = Callable[[dict[str, Any]], None]


def probe(arguments: dict[str, Any], send: Send) -> dict[str, Any]:
    """Counts the allocations of each treatment's step.

    Returns:
        `rows`: `treatment`, `status`, `reason` and, where it ended well, what `count` gives.
    """
    spec = probe_from_json(arguments["probe"])
    assert isinstance(spec, AllocationsProbe)
    rows: list[dict[str, Any]] = []
    for treated in spec.treated:
        try:
            found = {"status": "ok", "reason": "", **count(treated, spec, arguments)}
        except Exception as error:  # a treatment that this device has not leaves the others alone
            status, reason = classify(error)
            found = {"status": status, "reason": reason}
        rows.append({"treatment": treated.id, **found})
        send({"partial": {"rows": rows}})
    return {"rows": rows}


def count(treated: MemorySpec, spec: AllocationsProbe, arguments: dict[str, Any]) -> dict[str, Any]:
    """Counts what steps allocate after some that nobody counts.

    Returns:
        `allocations` and `bytes`, one number for each of `n_steps` steps, frees not counted; `peak_heap_bytes`, the
        most that was allocated at once from before the model was built to the end of the last uncounted step, with
        `data_bytes`, what of it holds tokens and windows; `memray`, its version; `observed`.

    Raises:
        Unavailable: memray is not installed.
    """
    try:
        import memray
    except ImportError as error:
        raise Unavailable(f"memray cannot be imported ({error}): pip install memray") from error
    warm_up(treated, arguments)  # what torch loads with the first step of a kind is none of the model's
    with tempfile.TemporaryDirectory(prefix="assay-memray-") as folder:
        files = (Path(folder) / f"{n}.bin" for n in range(spec.n_steps + 1))
        file = next(files)
        with memray.Tracker(file):
            step = build_step(treated, arguments)
            for _ in range(spec.warmup_steps):
                step.run()
        with memray.FileReader(file) as reader:
            held = list(_calls(memray, reader.get_high_watermark_allocation_records(merge_threads=True)))
        counted = []
        for file in files:
            with memray.Tracker(file):
                step.run()
                step.synchronise()
            with memray.FileReader(file) as reader:
                counted.append(list(_calls(memray, reader.get_allocation_records())))
    return {
        "allocations": [sum(record.n_allocations for record in records) for records in counted],
        "bytes": [sum(record.size for record in records) for records in counted],
        "peak_heap_bytes": sum(record.size for record in held),
        "data_bytes": step.batches.host_bytes(),
        "memray": version("memray"),
        "observed": step.observed(),
    }


def _calls(memray: Any, records: Iterable[Any]) -> Iterator[Any]:
    """The records of calls that allocate; memray records what frees and what maps memory, too."""
    kinds = memray.AllocatorType
    others = {kinds.FREE, kinds.MMAP, kinds.MUNMAP}
    return (record for record in records if record.allocator not in others)
