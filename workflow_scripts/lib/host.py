"""The machine around the devices: its processor, and the cores and memory that this process may use of it."""

import contextlib
import math
import os
import platform
import subprocess
import sys
from pathlib import Path

import psutil

_CGROUPS = Path("/sys/fs/cgroup")


def available_cores(topology: Path = Path("/sys/devices/system/cpu"), cgroups: Path = _CGROUPS) -> tuple[int, int]:
    """Counts the logical and the physical cores that this process may use, both at least 1.

    Takes into account the affinity mask and a container's quota of processor time. On Apple silicon only the fast
    cores count as physical, as in torch's own default: a parallel loop waits for its slowest thread.
    """
    if hasattr(os, "sched_getaffinity"):
        usable = os.sched_getaffinity(0)
        siblings = {_siblings(topology, core) for core in usable}
        logical, physical = len(usable), len(siblings)
    else:
        logical = os.cpu_count() or 1
        fast = _sysctl("hw.perflevel0.physicalcpu") if sys.platform == "darwin" else None
        physical = int(fast) if fast else psutil.cpu_count(logical=False) or logical
    quota = _cpu_quota(cgroups)
    if quota is not None:
        logical, physical = min(logical, quota), min(physical, quota)
    return logical, physical


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as its maker gives it; the architecture where it gives none."""
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip().lower() in {"model name", "cpu model", "hardware"} and value.strip():
                return " ".join(value.split())
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string") or platform.machine()
    return platform.processor() or platform.machine()


def memory_bytes(cgroups: Path = _CGROUPS) -> int:
    """Memory that this process may use: the machine's, or a container's limit where that is less."""
    total = psutil.virtual_memory().total
    for path in (cgroups / "memory.max", cgroups / "memory" / "memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(path.read_text()))
    return total


def _siblings(topology: Path, core: int) -> str:
    with contextlib.suppress(OSError):
        return (topology / f"cpu{core}" / "topology" / "thread_siblings_list").read_text().strip()
    return str(core)


def _cpu_quota(cgroups: Path) -> int | None:
    """Cores' worth of time that a container may use, at least 1; None without a limit."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = (cgroups / "cpu.max").read_text().split()
        return max(1, math.floor(int(quota) / int(period)))
    with contextlib.suppress(OSError, ValueError):
        quota = int((cgroups / "cpu" / "cpu.cfs_quota_us").read_text())
        period = int((cgroups / "cpu" / "cpu.cfs_period_us").read_text())
        return max(1, math.floor(quota / period)) if quota > 0 else None
    return None


def _sysctl(name: str) -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=True).stdout.strip() or None
    return None
