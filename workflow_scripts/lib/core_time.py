"""Processor time on the cores that this process may use, and how much of it is its own.

Where a process is confined to some cores (an affinity mask, a cpuset, a scheduler), what runs on the others disturbs it
little, and what the system tells of all its cores says nothing of these.
"""

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import psutil


def confined(system: Any) -> bool:
    """Whether this process may use a part of the cores only; `system` is psutil, or a test's."""
    n_cores = len(system.cpu_times(percpu=True))
    return len(_usable(n_cores)) < n_cores


def on_usable_cores(system: Any, names: Sequence[str]) -> float | None:
    """Seconds that the usable cores have spent in the named ways; None where the system tells none of them.

    Guest time, of virtual machines, is part of user time.
    """
    cores = system.cpu_times(percpu=True)
    usable = _usable(len(cores))
    spent = [getattr(core, name, None) for i, core in enumerate(cores) if i in usable for name in names]
    known = [seconds for seconds in spent if seconds is not None]
    return sum(known) if known else None


def own_cpu_s() -> float:
    """Seconds of this process and of all that it started, such as a compiler's workers; what has ended counts, too."""
    this = psutil.Process()
    spent = [sum(this.cpu_times()[:4])]  # user, system, and the same of children that were waited for
    for child in this.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            spent.append(sum(child.cpu_times()[:4]))
    return sum(spent)


def _usable(n_cores: int) -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(n_cores))
