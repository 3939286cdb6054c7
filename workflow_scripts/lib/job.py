"""What every script needs from Snakemake, in one place: plain arguments, a log that is filled, a word to the terminal.

The object that Snakemake gives is used by its attributes only, so that neither scripts nor tests import Snakemake.
"""

import json
import logging
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workflow_scripts.lib.lost_device import DeviceLost
from workflow_scripts.lib.machine_lock import TERMINAL

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def run_job(main: Callable[..., Any], snakemake: Any) -> None:
    """Calls a script's `main` with what its rule names, and sends all its output into the rule's log.

    Each named input and output becomes a keyword argument of its name, as a Path or, where the rule gives a list, as a
    list of Paths; `spec` is the rule's one param, read from JSON. Whatever the script or a process that it starts
    writes to stdout and stderr lands in the first log file; a traceback goes to the terminal as well.

    Raises:
        ValueError: an input or output without a name, or one name for two things.
    """
    terminal = _redirect(snakemake.log[0]) if len(snakemake.log) else None
    _set_up_logging(terminal)
    try:
        main(**_arguments(snakemake))
    except DeviceLost as lost:
        announce(str(lost))
        raise
    except Exception:
        if terminal is not None:
            _write(terminal, traceback.format_exc())
        raise
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


def announce(text: str) -> None:
    """Says one line to the person at the terminal, and to the log."""
    logging.getLogger(TERMINAL).info(" ".join(text.split()))


def _arguments(snakemake: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {"spec": json.loads(snakemake.params.spec)}
    for kind, files in (("input", snakemake.input), ("output", snakemake.output)):
        named = dict(files.items())
        if len(files) != sum(1 if isinstance(value, str) else len(value) for value in named.values()):
            raise ValueError(f"{kind}: every file of a rule with a script needs a name")
        for name, value in named.items():
            if name in arguments:
                raise ValueError(f"{kind}: the name {name!r} is taken; a rule's inputs and outputs need distinct names")
            arguments[name] = Path(value) if isinstance(value, str) else [Path(item) for item in value]
    return arguments


def _redirect(log: str) -> int:
    """Lets stdout and stderr, as file descriptors, end in the log; returns a descriptor of what stderr was."""
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    terminal = os.dup(2)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    return terminal


def _set_up_logging(terminal: int | None) -> None:
    logging.basicConfig(level=logging.INFO, format=_FORMAT, stream=sys.stderr)
    if terminal is not None:
        handler = logging.StreamHandler(os.fdopen(terminal, "w", closefd=False))
        handler.setFormatter(logging.Formatter("%(message)s"))
        logging.getLogger(TERMINAL).addHandler(handler)


def _write(descriptor: int, text: str) -> None:
    data = text.encode(errors="replace")
    while data:
        data = data[os.write(descriptor, data) :]
