"""Timelines in Chrome's trace format, gzipped: what Perfetto and chrome://tracing open. Needs no torch."""

import gzip
import json
from pathlib import Path
from typing import Any

from workflow_scripts.lib.whole_files import write_whole

# What says where a trace was made rather than what ran; a record has its own provenance.
_PRIVATE = ("host_name", "traceName", "trace_id")


def write_trace(path: Path, trace: dict[str, Any], title: str) -> None:
    """Writes a trace, without what names the machine, under a title."""
    shown = {"title": title} | {key: value for key, value in trace.items() if key not in _PRIVATE}

    def write(unfinished: Path) -> None:
        with gzip.open(unfinished, "wt", encoding="utf-8") as file:
            json.dump(shown, file, separators=(",", ":"))

    write_whole(path, write)
