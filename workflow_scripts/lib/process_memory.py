"""Memory of processes as the operating system counts it: the largest that one had, and those killed for lack of it."""

import contextlib
import ctypes
import os
import resource
import sys
from pathlib import Path

import psutil

_TRIM, _MMAP_MAX = -1, -4  # malloc.h


def peak_process_bytes(pid: int | str = "self") -> int | None:
    """Largest resident memory that a living process ever had, in bytes; None where it cannot be read.

    Linux: VmHWM of /proc/PID/status, which a fork sets back to what the child holds at that moment, and which unlike
    `ru_maxrss` does not remember the program that ran before an exec (proc(5), getrusage(2)). Elsewhere only for
    ourselves, from `ru_maxrss`, which macOS counts in bytes.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        return None
    if pid == "self" and sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return None


def keep_freed_memory() -> bool:
    """Has the C library keep what is freed for what is asked for next; tells whether it does from now on.

    By default glibc gives large blocks back to the system as they are freed, and the next step has each of their pages
    cleared and mapped anew. Which blocks are large depends on what the process freed before, so one and the same step
    takes one time or another (`benchmarks/kept_memory.py`). Nothing is given back with M_MMAP_MAX 0 and
    M_TRIM_THRESHOLD -1 (mallopt(3)). A person's own MALLOC_ variables and GLIBC_TUNABLES stand.
    """
    if sys.platform != "linux" or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return False
    option = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return option is not None and all(option(name, value) == 1 for name, value in ((_MMAP_MAX, 0), (_TRIM, -1)))


def given_pages() -> int:
    """How many pages the system has given this process until now, without reading any from a disk.

    Each costs longer than what it is needed for, in a virtual machine that never touched it ten times as long again
    (35 ms for 16 MiB), and no step after the first few: it has its pages from the step before.
    """
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def touch_memory(size_bytes: int) -> None:
    """Takes memory, at most a quarter of what is there, writes all of it and frees it.

    A C library that keeps what is freed (`keep_freed_memory`) need not ask for it again.
    """
    b"\1" * min(size_bytes, psutil.virtual_memory().available // 4)


def resident_bytes() -> int | None:
    """Memory of this process that is resident at this moment, in bytes; None where it cannot be read."""
    if sys.platform != "linux":
        return None
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def reset_peak_process_bytes() -> bool:
    """Sets what `peak_process_bytes` tells of this process back to what is resident now; tells whether that worked.

    Source: /proc/PID/clear_refs, value 5 (proc(5); Linux 4.0).
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def host_oom_kills(proc: Path = Path("/proc"), cgroup_mount: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Processes of our control group that the kernel has killed for lack of memory so far; None where not counted.

    Sources: memory.events of cgroup v2, memory.oom_control of v1 (kernel documentation, admin-guide); where neither can
    be read, the whole machine's count in /proc/vmstat.
    """
    for path in [*_group_counters(proc, cgroup_mount), proc / "vmstat"]:
        with contextlib.suppress(OSError):
            for line in path.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return None


def _group_counters(proc: Path, mount: Path) -> list[Path]:
    counters = []
    with contextlib.suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if not controllers:
                counters.append(mount / group.lstrip("/") / "memory.events")
            elif "memory" in controllers.split(","):
                counters.append(mount / "memory" / group.lstrip("/") / "memory.oom_control")
    return counters
