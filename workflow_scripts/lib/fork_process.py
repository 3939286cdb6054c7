"""The process that forks measuring children: imports torch, waits for jobs, ends with its workflow.

Run by `fork_server` as `python -m workflow_scripts.lib.fork_process SOCKET WORKFLOW_PID WORKFLOW_CREATE_TIME`.
"""

import contextlib
import dataclasses
import gc
import importlib
import json
import os
import selectors
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

import psutil

from workflow_scripts.lib import child
from workflow_scripts.lib.fork_server import kill_group, read_line

# No more than any training imports: what is imported here counts in the memory of every child.
_PRELOADED = ("torch", "torch._dynamo")
_REQUEST_TIMEOUT_S = 10.0


@dataclasses.dataclass
class _Forked:
    pid: int
    pidfd: int
    connection: socket.socket


class _Server:
    def __init__(self, listener: socket.socket, workflow_pidfd: int) -> None:
        self.listener = listener
        self.workflow_pidfd = workflow_pidfd
        self.selector = selectors.DefaultSelector()
        self.children: dict[int, _Forked] = {}

    def serve(self, refusal: str | None) -> None:
        """Answers jobs until the workflow ends; with a refusal, only the first one, which waits already."""
        self.selector.register(self.workflow_pidfd, selectors.EVENT_READ)
        self.selector.register(self.listener, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                if key.fileobj == self.workflow_pidfd:
                    return
                if key.fileobj is self.listener:
                    connection, _ = self.listener.accept()
                    self._answer(connection, refusal)
                    if refusal is not None:
                        return
                elif key.data.pid in self.children:
                    kill_group(key.data.pid)  # the child has ended, or its job has: nothing of it may stay
                    if key.fileobj == key.data.pidfd:
                        self._reap(key.data)
                    else:
                        self.selector.unregister(key.data.connection)

    def end(self) -> None:
        for forked in self.children.values():
            kill_group(forked.pid)

    def _answer(self, connection: socket.socket, refusal: str | None) -> None:
        connection.settimeout(_REQUEST_TIMEOUT_S)
        descriptors: list[int] = []
        try:
            start, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 3)
            request = json.loads(start if start.endswith(b"\n") else start + read_line(connection))
            if refusal is not None:
                connection.sendall(json.dumps({"refused": refusal}).encode() + b"\n")
                connection.close()
                return
            forked = self._fork(request, descriptors, connection)
            self.children[forked.pid] = forked
            self.selector.register(forked.pidfd, selectors.EVENT_READ, forked)
            self.selector.register(connection, selectors.EVENT_READ, forked)
            connection.sendall(json.dumps({"pid": forked.pid}).encode() + b"\n")
        except (OSError, ValueError):
            connection.close()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _fork(self, request: dict[str, Any], descriptors: list[int], connection: socket.socket) -> _Forked:
        pid = os.fork()
        if pid == 0:
            try:
                self._become_child(request, descriptors, connection)
            finally:
                os._exit(1)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # whoever is first; the group must exist before anybody kills it
        return _Forked(pid, os.pidfd_open(pid), connection)

    def _become_child(self, request: dict[str, Any], descriptors: list[int], connection: socket.socket) -> NoReturn:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        for descriptor, ours in zip(descriptors[1:], (1, 2), strict=True):
            os.dup2(descriptor, ours)
            os.close(descriptor)
        self.selector.close()
        self.listener.close()
        connection.close()
        for other in self.children.values():
            other.connection.close()
            os.close(other.pidfd)
        os.close(self.workflow_pidfd)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        for entry in reversed(os.environ.get("PYTHONPATH", "").split(os.pathsep)):
            if entry and entry not in sys.path:
                sys.path.insert(0, entry)
        importlib.invalidate_caches()
        child.serve(socket.socket(fileno=descriptors[0]))
        raise AssertionError("serve does not return")

    def _reap(self, forked: _Forked) -> None:
        _, status = os.waitpid(forked.pid, 0)
        del self.children[forked.pid]
        self.selector.unregister(forked.pidfd)
        os.close(forked.pidfd)
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(forked.connection)
        with contextlib.suppress(OSError):
            forked.connection.sendall(json.dumps({"exit": os.waitstatus_to_exitcode(status)}).encode() + b"\n")
        forked.connection.close()


def _preload() -> str | None:
    """Imports what every child needs; says why forks of this process would not be as good as a fresh one, if so."""
    for name in _PRELOADED:
        try:
            torch = importlib.import_module(name.partition(".")[0])
            importlib.import_module(name)
        except Exception as error:  # any failure of the import means plain processes
            return f"import {name}: {type(error).__name__}: {error}"
    if torch.cuda.is_initialized():
        return "CUDA is initialised, which does not survive a fork"
    gc.collect()
    gc.freeze()
    # A first fork makes OpenBLAS, which numpy loads, end its idle threads; it starts new ones where they are needed.
    trial = os.fork()
    if trial == 0:
        os._exit(0)
    os.waitpid(trial, 0)
    threads = len(list(Path("/proc/self/task").iterdir()))
    return None if threads == 1 else f"{threads - 1} threads run after importing torch, which a fork would lose"


def main() -> None:
    path, pid, created = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    workflow_pidfd = os.pidfd_open(pid)
    if psutil.Process(pid).create_time() != created:
        raise SystemExit("the workflow has ended")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        if os.fork():
            os._exit(0)  # tells the job that it can connect
        server = _Server(listener, workflow_pidfd)
        try:
            server.serve(_preload())
        finally:
            server.end()
            path.unlink(missing_ok=True)
            log = path.with_suffix(".log")
            if log.is_file() and log.stat().st_size == 0:
                log.unlink()


if __name__ == "__main__":
    main()
