"""What the tests of isolation run in a process of its own; torch is imported only where it is used."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from workflow_scripts.lib.outcome import Barred, Diverged, Unavailable


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


def succeed(arguments, send):
    send({"progress": 1})
    send({"partial": {"n": 1}})
    return {"got": arguments, "nan": float("nan"), "threads": os.environ["OMP_NUM_THREADS"]}


def fail(arguments, send):
    errors = {
        "error": ValueError("two\nlines"),
        "host_memory": MemoryError("no room"),
        "cuda_memory": OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        "cpu_memory": RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"),
        "unavailable": Unavailable("no C++ compiler"),
        "diverged": Diverged("at step 7"),
        "barred": Barred("leaks the future"),
        "exit": SystemExit(2),
    }
    send({"partial": {"n": 7}})
    raise errors[arguments["how"]]


def allocate(arguments, send):
    bytearray(arguments["bytes"])
    return {}


def fill_again(arguments, send):
    """Counts the pages that the system had to give for blocks as large as those that were just freed."""
    import torch

    for _ in range(20):  # aligned blocks leave splinters behind, beside which the next does not fit at first
        torch.ones(arguments["elements"])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.ones(arguments["elements"])
    return {"pages": resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before}


def hold(arguments, send):
    block = bytearray(arguments["bytes"])
    return {"held": len(block)}


def hang(arguments, send):
    """Leaves a child of its own behind, as a compiler would be, and never returns."""
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    send({"partial": {"n": 3}})
    Path(arguments["pids"]).write_text(f"{os.getpid()} {left.pid}")
    print("said before the end")  # noqa: T201
    time.sleep(600)


def leave(arguments, send):
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return {"left": left.pid}


def die(arguments, send):
    send({"partial": {"n": 2}})
    os.kill(os.getpid(), signal.Signals[arguments["signal"]])
    time.sleep(600)


def vanish(arguments, send):
    os._exit(3)


def unprintable(arguments, send):
    return {"x": object()}


def occupy(arguments, send):
    Path(arguments["mark"]).touch()
    time.sleep(arguments["seconds"])
    Path(arguments["mark"]).unlink()
    return {}


def variables(arguments, send):
    return {name: os.environ.get(name) for name in arguments["names"]}


def oom_score(arguments, send):
    """How readily Linux ends this process when memory runs out; None elsewhere."""
    path = Path("/proc/self/oom_score_adj")
    return {"oom_score_adj": int(path.read_text()) if path.exists() else None}


def call_often(arguments, send):
    from benchmarks.frames import pages_a_call

    return {"pages_a_call": pages_a_call()}


def call_often_in_backward(arguments, send):
    import torch

    from benchmarks.frames import pages_a_call
    from workflow_scripts.lib.execution import _make_room_for_backward

    found, device = [], torch.device("cuda")
    _make_room_for_backward(device)
    number = torch.ones((), device=device, requires_grad=True)
    total = number + number
    total.register_hook(lambda gradient: found.append(pages_a_call()))
    total.backward()
    return {"pages_a_call": found[0]}
