"""The child's side of a measurement: receives what to call, calls it, and sends back what came of it.

The channel is a Unix socket whose other end the job holds. Towards us it carries one line of JSON, the request; from us
lines of JSON: `{"partial": …}` and other messages while the function runs, and at last `{"ended": {…}}` with `status`,
`reason`, `result` and `peak_process_bytes`. When the job dies, however it dies, the channel ends, and so do we, with
everything that we started.

Run as `python -m workflow_scripts.lib.child FD`, or entered through `serve` after a fork.
"""

import contextlib
import gc
import importlib
import json
import math
import os
import signal
import socket
import sys
import threading
import traceback
from itertools import product
from pathlib import Path
from typing import Any

from workflow_scripts.lib.frames import roomy
from workflow_scripts.lib.outcome import Ended, classify
from workflow_scripts.lib.process_memory import keep_freed_memory, peak_process_bytes

# Making an optimizer imports this module (seconds); here it is paid before anything is timed, whichever way we started.
_IMPORTED_WITH_TORCH = "torch._dynamo"

# What is called of MKL's functions of vectors. MKL chooses one's code at its first call, and where threads make that
# call together, one of them can get much coarser code for this once: AdamW's first square roots, say, and then a
# training is another one. https://github.com/pytorch/pytorch/issues/188792
_CHOSEN_AT_FIRST_CALL = ("sqrt", "exp", "log", "cos", "sin")


def main() -> None:
    """Entry of a fresh process."""
    serve(socket.socket(fileno=int(sys.argv[1])))


def serve(channel: socket.socket) -> None:
    """Reads the request from the channel, carries it out, reports, and ends the process. Never returns."""
    lines = channel.makefile("rb")
    request = json.loads(lines.readline() or b"null")
    if request is None:
        os._exit(1)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # so that the log has what a killed process last said
    _go_first()
    threading.Thread(target=_end_with_the_job, args=(lines,), daemon=True).start()

    def send(message: dict[str, Any]) -> None:
        channel.sendall(encode(message))

    answer = _carry_out(request, send)
    _flush()
    send({"ended": {**answer, "peak_process_bytes": peak_process_bytes()}})
    # The interpreter's and the driver's tear-down are not part of any measurement, and can only fail.
    os._exit(0)


@roomy
def _carry_out(request: dict[str, Any], send: Any) -> dict[str, Any]:
    module_name, _, name = request["target"].partition(":")
    try:
        function = getattr(importlib.import_module(module_name), name)
        _settle(request["threads"])
        result = function(request["arguments"], send)
        encode(result)  # what JSON cannot hold is an error of the function, not of the channel
        return {"status": "ok", "reason": "", "result": result}
    except BaseException as error:  # whatever it is, it becomes a status
        if not isinstance(error, Ended):
            traceback.print_exc()
        status, reason = classify(error)
        return {"status": status, "reason": reason, "result": None}


def _settle(threads: int) -> None:
    """Brings fresh and forked processes into one state: memory, threads, modules, functions, work for the collector."""
    keep_freed_memory()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
        for name, dtype in product(_CHOSEN_AT_FIRST_CALL, (torch.float32, torch.float64)):
            getattr(torch, name)(torch.ones(1, dtype=dtype))  # too short to be shared among threads
        importlib.import_module(_IMPORTED_WITH_TORCH)
    gc.collect()
    gc.freeze()


def _go_first() -> None:
    """Offers this process to Linux, should the host's memory run out: a measurement is the least to lose."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _end_with_the_job(lines: Any) -> None:
    # Not PR_SET_PDEATHSIG: it ends us before we can end what we started, and there is none on macOS.
    with contextlib.suppress(OSError):
        lines.read()  # nothing more is sent: this returns when the job's end is closed
    os.killpg(0, signal.SIGKILL)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def encode(message: Any) -> bytes:
    """Prints a message as one line of valid JSON; NaN and infinities become null."""
    try:
        text = json.dumps(message, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(message), allow_nan=False)
    return text.encode() + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    main()
