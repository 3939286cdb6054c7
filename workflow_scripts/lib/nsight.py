"""What runs on an NVIDIA GPU and when, as Nsight Systems sees it: a second timeline, where `nsys` is installed."""

import csv
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NOT_FOUND = "nsys not found"
START, DURATION = "Start (ns)", "Duration (ns)"


def device_spans(module: str, given: str, timeout_s: float) -> tuple[list[tuple[int, int]] | None, str]:
    """Runs a module under Nsight Systems, between its calls of `torch.cuda.profiler.start` and `stop`.

    Args:
        module: what `python -m` runs.
        given: its standard input.
        timeout_s: each of the two programs is ended after this time.

    Returns:
        Start and end in ns of each kernel and copy on the device, or None, and in words how that came about.
    """
    nsys = shutil.which("nsys")
    if nsys is None:
        return None, NOT_FOUND
    with tempfile.TemporaryDirectory(prefix="assay-nsys-") as folder:
        report = Path(folder) / "report"
        watched = [
            nsys, "profile", "--trace=cuda", "--capture-range=cudaProfilerApi", "--capture-range-end=stop",
            "--force-overwrite=true", f"--output={report}", sys.executable, "-P", "-m", module,
        ]  # fmt: skip
        told = [
            nsys, "stats", "--report=cuda_gpu_trace", "--format=csv", "--force-export=true", "--output=-",
            f"{report}.nsys-rep",
        ]  # fmt: skip
        try:
            _run(watched, given, timeout_s)
            spans = spans_of(_run(told, "", timeout_s))
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return None, f"nsys failed: {error}"
    return spans, f"nsys, {len(spans)} kernels and copies"


def spans_of(text: str) -> list[tuple[int, int]]:
    """Reads the report `cuda_gpu_trace`: lines of what `nsys` has done, then a table.

    Raises:
        ValueError: there is no such table.
    """
    lines = text.splitlines()
    first = next((n for n, line in enumerate(lines) if line.startswith(START)), None)
    if first is None:
        raise ValueError(f"its report has no column {START!r}")
    rows = [row for row in csv.DictReader(lines[first:]) if row[START] and row[DURATION]]
    return [(int(row[START]), int(row[START]) + int(row[DURATION])) for row in rows]


def _run(command: list[str], given: str, timeout_s: float) -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        raise ValueError((done.stderr or done.stdout).strip()[-300:] or f"exit status {done.returncode}")
    return done.stdout
