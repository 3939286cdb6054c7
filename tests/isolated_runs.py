"""Calls of the targets of `isolation_targets` in processes of their own, and what tests ask of such processes."""

import contextlib
import sys
import time

import psutil
import pytest

from workflow_scripts.lib.isolation import run_isolated
from workflow_scripts.lib.specs import DeviceSpec

TARGETS = "tests.isolation_targets:"
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the fork server is for Linux")


def cpu(threads: int = 1) -> DeviceSpec:
    return DeviceSpec(id="cpu", type="cpu", threads=threads)


def servers_of(pid: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if "workflow_scripts.lib.fork_process" in words and str(pid) in words:
                found.append(process)
    return found


def eventually(condition, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def run(name: str, arguments: dict | None = None, targets: str = TARGETS, **options):
    options = {"device": cpu(), "timeout_s": 60.0, **options}
    return run_isolated(targets + name, arguments or {}, **options)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
