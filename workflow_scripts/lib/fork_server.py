"""Starts children by forking a process that has torch imported, so that a measurement does not wait for the import.

The server belongs to one workflow: the first measuring job starts it, later jobs find it by a socket in a private
folder, and it ends, with all its children, when the workflow's process ends. It has no threads, and touches no device,
so a fork of it is as good as a fresh interpreter; where that is in doubt it refuses, and a plain process is started.

Conversation on the socket: the job sends a line of JSON (`environment`, `folder`) with three file descriptors (channel,
stdout, stderr); the server answers `{"pid": …}` or `{"refused": …}`, and `{"exit": …}` when the child has ended. When
the job closes its side, the child is killed.
"""

import contextlib
import hashlib
import json
import logging
import os
import select
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import psutil

from workflow_scripts.lib.machine_lock import runtime_folder
from workflow_scripts.lib.specs import DeviceSpec

_SERVER = "workflow_scripts.lib.fork_process"
COMPILED_FOLDER = "TORCHINDUCTOR_CACHE_DIR"  # looked up whenever something is compiled, so each child has its own
_START_TIMEOUT_S = 30.0
_FORK_TIMEOUT_S = 300.0  # importing torch from a cold or remote disk takes long, once
# Read by libraries while they load: two children may come from one server only if these are equal.
_LOAD_TIME_PREFIXES = (
    "ATEN_ CUBLAS_ CUDA_ CUDNN_ DNNL_ GLIBC_ GOMP_ KMP_ LD_ MALLOC_ MKL_ NCCL_ NVIDIA_ OMP_ ONEDNN_ OPENBLAS_ PYTHON "
    "PYTORCH_ TORCH TRITON_ VECLIB_"
).split()

logger = logging.getLogger(__name__)


class ServerLost(Exception):
    """The server ended before its child did."""


def can_fork(device: DeviceSpec) -> bool:
    """Whether a forked child may use the device: not on macOS, where system libraries do not survive a fork."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and device.type in {"cpu", "cuda"}


def fork_child(workflow: psutil.Process, environment: dict[str, str], channel: socket.socket) -> "ForkedProcess | None":
    """Lets the workflow's server fork a child that holds `channel`; None, with the reason in the log, if it cannot.

    Args:
        workflow: the process whose end ends the server.
        environment: the child's, complete.
        channel: the child's end of the socket to the job.
    """
    connection = None
    try:
        connection = _connect(workflow, environment)
        connection.settimeout(_FORK_TIMEOUT_S)
        request = json.dumps({"environment": environment, "folder": str(Path.cwd())}).encode() + b"\n"
        sent = socket.send_fds(connection, [request], [channel.fileno(), 1, 2])
        connection.sendall(request[sent:])
        answer = json.loads(read_line(connection) or b'{"refused": "it ended"}')
        if "pid" in answer:
            return ForkedProcess(connection, answer["pid"])
        logger.warning("no fork server (%s); starting a plain process", answer["refused"])
    except (OSError, ValueError, subprocess.SubprocessError, psutil.Error) as error:
        logger.warning("no fork server (%s); starting a plain process", error)
    if connection is not None:
        connection.close()
    return None


class ForkedProcess:
    """A child that the server forked, seen from the job."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self._exit: int | None = None
        self.pid = pid
        self.sentinel: int | None = connection.fileno()

    def poll(self) -> int | None:
        """Exit status, −N for signal N, None while it runs.

        Raises:
            ServerLost: nobody can tell any more.
        """
        if self._exit is None and select.select([self._connection], [], [], 0)[0]:
            try:
                line = read_line(self._connection)
            except OSError:
                line = b""
            if not line:
                kill_group(self.pid)
                raise ServerLost("the fork server ended during a measurement")
            self._exit = json.loads(line)["exit"]
        return self._exit

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._connection.close()


def read_line(connection: socket.socket) -> bytes:
    """Reads up to a line's end, which is the last byte that the other side sent, or up to the end of the stream."""
    line = b""
    while not line.endswith(b"\n"):
        received = connection.recv(1 << 16)
        if not received:
            return b""
        line += received
    return line


def _connect(workflow: psutil.Process, environment: dict[str, str]) -> socket.socket:
    path = _private_folder() / f"{_key(workflow, environment)}.sock"
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
    except OSError:
        # Nobody listens: this job is the first, or the server is gone. Jobs hold the machine's lock, so none races us.
        path.unlink(missing_ok=True)
        _start_server(path, workflow, environment)
        connection.connect(str(path))
    return connection


def _start_server(path: Path, workflow: psutil.Process, environment: dict[str, str]) -> None:
    with path.with_suffix(".log").open("ab") as log:
        # Returns when the server listens: it goes on in the background by itself.
        subprocess.run(
            [sys.executable, "-P", "-m", _SERVER, str(path), str(workflow.pid), repr(workflow.create_time())],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            timeout=_START_TIMEOUT_S,
            check=True,
        )


def _private_folder() -> Path:
    """A folder of ours alone; a socket in it can only have been made by us."""
    folder = runtime_folder() / f"assay-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise PermissionError(f"{folder} is not a folder that only we can use")
    return folder


def _key(workflow: psutil.Process, environment: dict[str, str]) -> str:
    """Names the server: its workflow, its interpreter and code, and all that was fixed when its libraries loaded."""
    loaded = {
        name: value
        for name, value in environment.items()
        if name.startswith(tuple(_LOAD_TIME_PREFIXES)) and name != COMPILED_FOLDER
    }
    parts = [
        workflow.pid,
        workflow.create_time(),
        sys.executable,
        __file__,
        sorted(loaded.items()),
        sorted(os.sched_getaffinity(0)),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def kill_group(pid: int) -> None:
    """Kills a child's whole process group, if any of it is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
