"""Runs one measurement in a process of its own: alone on the machine, bounded in time, and with its end classified.

The only place that knows how such a process is started and watched. What runs in it is named by a string
`"package.module:function"`, so that a job never imports torch; `child` is the other side of the conversation.
"""

import contextlib
import dataclasses
import datetime
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

from workflow_scripts.lib import cuda_allocator, fork_server
from workflow_scripts.lib.compiled_code import compiled_folder
from workflow_scripts.lib.lost_device import present
from workflow_scripts.lib.machine_lock import machine_lock
from workflow_scripts.lib.outcome import Barred, Diverged, Outcome, Status, Unavailable
from workflow_scripts.lib.process_memory import host_oom_kills, peak_process_bytes
from workflow_scripts.lib.specs import DeviceSpec
from workflow_scripts.lib.workflow_process import Workflow

__all__ = ["Barred", "Diverged", "Outcome", "Unavailable", "child_environment", "run_isolated"]

ROOT = Path(__file__).resolve().parents[2]
_CHILD = "workflow_scripts.lib.child"
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_CHUNK_BYTES = 1 << 16
_POLL_S = 0.5  # only where the kernel cannot tell of a process's end by itself
_END_AFTER_KILL_S = 30.0  # a process stuck in a driver call dies late, or never

logger = logging.getLogger(__name__)


class Process(Protocol):
    """A started child, however it was started."""

    pid: int
    sentinel: int | None  # becomes readable when the child may have ended; None: poll

    def poll(self) -> int | None:
        """Exit status, −N for signal N, None while it runs. Raises fork_server.ServerLost."""

    def kill(self) -> None:
        """Kills the child and all that it started."""

    def close(self) -> None:
        """Gives back what watching the child took, once it has ended."""


@dataclasses.dataclass(kw_only=True)
class _Conversation:
    start: Literal["fresh", "forked"]
    ended: dict[str, Any] | None = None
    partial: dict[str, Any] | None = None
    timed_out: bool = False
    peak_process_bytes: int | None = None
    exit_status: int | None = None


def run_isolated(
    target: str,
    arguments: dict[str, Any],
    *,
    device: DeviceSpec,
    timeout_s: float,
    on_message: Callable[[dict[str, Any]], None] | None = None,
    fresh: bool = False,
    environment: dict[str, str] | None = None,
    compiled: Path | None = None,
) -> Outcome:
    """Calls `target(arguments, send)` in a process of its own while holding the machine.

    The function returns JSON values. It may `send({"partial": {…}})` to leave a result that survives its own death, and
    any other message, which goes to `on_message`. NaN and infinities arrive as None.

    Args:
        target: `"package.module:function"`, importable from the repository or from PYTHONPATH.
        arguments: JSON values.
        device: where it measures; sets the number of threads.
        timeout_s: seconds from the start of the process until it is killed; waiting for the machine does not count.
        on_message: called in this process with each message that is no partial result.
        fresh: start a new interpreter even where a fork would do. Forked processes share one layout of addresses, so
            a spread between processes that is to include its luck needs fresh ones.
        environment: variables of the child alone, such as those that its C library reads when it starts; with any, it
            is a new interpreter.
        compiled: a folder of compiled code that this child shares with others, for one whose compile time is no result;
            by default it finds nothing and leaves nothing.

    Raises:
        WorkflowEnded: the workflow died meanwhile; the child is dead by then.
        DeviceLost: the device vanished meanwhile, so that there is no result to keep.
    """
    workflow = Workflow.find()
    try:
        with machine_lock(check=workflow.check):
            server_of = None if fresh or environment else workflow
            with compiled_folder(compiled) as (folder, keep):
                variables = child_environment(device) | {fork_server.COMPILED_FOLDER: folder} | (environment or {})
                outcome = _run(target, arguments, device, timeout_s, on_message, server_of, workflow, variables)
                keep(outcome.status == "ok")
            return present(device, outcome)
    finally:
        workflow.close()


def _run(
    target: str,
    arguments: dict[str, Any],
    device: DeviceSpec,
    timeout_s: float,
    on_message: Callable[[dict[str, Any]], None] | None,
    server_of: Workflow | None,
    workflow: Workflow,
    variables: dict[str, str],
) -> Outcome:
    request = {"target": target, "arguments": arguments, "threads": device.threads}
    kills_before = host_oom_kills()
    started_at, start = _now(), time.monotonic()
    try:
        with _start(variables, device, server_of) as (process, channel):
            heard = _converse(process, channel, request, start + timeout_s, on_message, workflow)
    except fork_server.ServerLost as error:
        workflow.check()
        logger.warning("%s; measuring again in a plain process", error)
        return _run(target, arguments, device, timeout_s, on_message, None, workflow, variables)
    status, reason = _classify(heard, timeout_s, kills_before)
    return Outcome(
        status=status,
        reason=reason,
        result=heard.ended["result"] if status == "ok" and heard.ended else heard.partial,
        peak_process_bytes=heard.peak_process_bytes,
        wall_s=time.monotonic() - start,
        started_at=started_at,
        ended_at=_now(),
        start=heard.start,
    )


@contextlib.contextmanager
def _start(
    environment: dict[str, str], device: DeviceSpec, server_of: Workflow | None
) -> Iterator[tuple[Process, socket.socket]]:
    """Starts a child, and sees to it that none of it is left afterwards, whatever happens in between."""
    channel, theirs = socket.socketpair()
    process: Process | None = None
    with channel:
        with theirs:
            if server_of is not None and server_of.process is not None and fork_server.can_fork(device):
                process = fork_server.fork_child(server_of.process, environment, theirs)
            if process is None:
                process = _PlainProcess(environment, theirs)
        try:
            yield process, channel
        finally:
            with contextlib.suppress(fork_server.ServerLost):
                if process.poll() is None:
                    process.kill()
                    _await_end(process)
            process.close()


class _PlainProcess:
    """A fresh interpreter in a session of its own."""

    def __init__(self, environment: dict[str, str], channel: socket.socket) -> None:
        # -P: modules in the working directory must not stand in for ours or torch's.
        command = [sys.executable, "-P", "-m", _CHILD, str(channel.fileno())]
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=[channel.fileno()],
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.sentinel: int | None = None
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self.sentinel = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()  # its group may hold compilers or workers that would disturb the next measurement
        if self.sentinel is not None:
            os.close(self.sentinel)


def child_environment(device: DeviceSpec) -> dict[str, str]:
    """The environment of a measuring process: ours, with the device's threads instead of those that the engine sets."""
    environment = dict(os.environ)
    environment.update(dict.fromkeys(_THREAD_VARIABLES, str(device.threads)))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # CUDA numbers devices by speed unless told otherwise; NVML, where `devices` reads their names, by bus.
    environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    environment[cuda_allocator.VARIABLE] = cuda_allocator.allocator_settings()
    environment.pop("TRITON_CACHE_DIR", None)  # it would be looked up before the child's own folder, and be warm
    return environment


def _converse(
    process: Process,
    channel: socket.socket,
    request: dict[str, Any],
    deadline: float,
    on_message: Callable[[dict[str, Any]], None] | None,
    workflow: Workflow,
) -> _Conversation:
    """Sends the request and listens until the child has ended or its time is over."""
    heard = _Conversation(start="fresh" if isinstance(process, _PlainProcess) else "forked")
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        channel.sendall(json.dumps(request).encode() + b"\n")
    listening = [channel]
    watched = [fd for fd in (process.sentinel, workflow.pidfd) if fd is not None]
    all_watched = process.sentinel is not None and (workflow.pidfd is not None or workflow.process is None)
    pending = b""
    while True:
        left = max(0.0, deadline - time.monotonic())
        readable, _, _ = select.select([*listening, *watched], [], [], left if all_watched else min(left, _POLL_S))
        exit_status = process.poll()
        if channel in readable:
            received = _receive(channel)
            if not received:
                listening.clear()
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                _take(json.loads(line), heard, on_message)
            if heard.ended is not None:
                deadline = min(deadline, time.monotonic() + _END_AFTER_KILL_S)
        elif exit_status is not None:
            heard.exit_status = exit_status
            return heard
        elif time.monotonic() >= deadline:
            heard.timed_out = True
            heard.peak_process_bytes = heard.peak_process_bytes or peak_process_bytes(process.pid)
            process.kill()
            heard.exit_status = _await_end(process)
            return heard
        workflow.check()


def _receive(channel: socket.socket) -> bytes:
    try:
        return channel.recv(_CHUNK_BYTES)
    except ConnectionResetError:
        return b""


def _take(message: dict[str, Any], heard: _Conversation, on_message: Callable[[dict[str, Any]], None] | None) -> None:
    if "ended" in message:
        heard.ended = message["ended"]
        heard.peak_process_bytes = message["ended"]["peak_process_bytes"]
    elif "partial" in message:
        heard.partial = message["partial"]
    elif on_message is not None:
        on_message(message)


def _await_end(process: Process) -> int | None:
    deadline = time.monotonic() + _END_AFTER_KILL_S
    while (exit_status := process.poll()) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if exit_status is None:
        logger.error("process %d does not end although it was killed", process.pid)
    return exit_status


def _classify(heard: _Conversation, timeout_s: float, kills_before: int | None) -> tuple[Status, str]:
    if heard.ended is not None:
        return heard.ended["status"], heard.ended["reason"]
    if heard.timed_out:
        return "timeout", f"stopped after {timeout_s:g} s"
    exit_status = heard.exit_status or 0
    if exit_status >= 0:
        return "error", f"the process ended with exit status {exit_status} and without a result"
    name = signal.Signals(-exit_status).name if -exit_status in set(signal.Signals) else f"signal {-exit_status}"
    kills = host_oom_kills()
    if name == "SIGKILL" and kills is not None and kills_before is not None and kills > kills_before:
        return "oom", "killed by the host, which had no memory left"
    return "killed", f"killed by {name}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
