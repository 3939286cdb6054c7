"""What follows from a device's calibration: whether it, or a pair of precision and execution, may be measured.

A leaf without torch: the job that calibrates decides, its child processes only measure.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from workflow_scripts.lib.outcome import Outcome

BUSY_CORES = 0.5  # kept busy by other processes while ceilings were measured: they are then too low


def pairs(combinations: Sequence[Sequence[str]]) -> dict[tuple[str, str], list[str]]:
    """Groups (architecture, precision, execution) into the architectures of each (precision, execution)."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for architecture, precision, execution in combinations:
        grouped.setdefault((precision, execution), []).append(architecture)
    return grouped


def device_verdict(identified: dict[str, Any], ceilings: Outcome) -> tuple[str, str]:
    """Gives the status of a device, and why.

    A device is barred whose identity is in doubt or whose clock did not pass the self-check. Where torch cannot use it
    at all, each cell will find that out and say so. Ceilings that are incomplete bar nothing.

    Args:
        identified: device.json.
        ceilings: how measuring the ceilings ended.
    """
    if identified["status"] == "barred":
        return "barred", identified["reason"]
    if ceilings.status == "unavailable":
        return "unavailable", ceilings.reason
    synchronisation = (ceilings.result or {}).get("synchronisation")
    if synchronisation is None:
        return "barred", f"the self-check of synchronisation did not end: {ceilings.status}, {ceilings.reason}"
    if not synchronisation["synchronised"]:
        return "barred", synchronisation["reason"]
    return "ok", ceilings.reason


def check(
    wanted: dict[tuple[str, str], list[str]], run: Callable[[list[dict[str, Any]]], Outcome]
) -> Iterator[tuple[dict[str, str], Outcome]]:
    """Checks pairs of precision and execution in one process, and what that left over in a further one.

    Args:
        wanted: the architectures of each pair.
        run: `correctness.check_pairs` in a process of its own.

    Yields:
        `precision` and `execution`, and how checking that pair ended.
    """
    waiting = [{"precision": pair[0], "execution": pair[1], "architectures": wanted[pair]} for pair in wanted]
    while waiting:
        outcome = run(waiting)
        ended = [dataclasses.replace(outcome, **one) for one in (outcome.result or {}).get("pairs", ())]
        if outcome.status != "ok" or not ended:  # the process ended in the midst of the next pair
            ended.append(dataclasses.replace(outcome, result=None))
        for pair, one in zip(waiting, ended, strict=False):
            yield {key: pair[key] for key in ("precision", "execution")}, one
        waiting = waiting[len(ended) :]


def verdict(outcome: Outcome) -> tuple[str, str]:
    """Judges how checking one pair ended: `ok`, `unavailable`, or `barred` with the reason.

    What was not shown to be right is barred, also where the check itself broke off.
    """
    if outcome.status == "unavailable":
        return "unavailable", outcome.reason
    if outcome.status != "ok" or outcome.result is None:
        return "barred", f"the check of correctness did not end: {outcome.status}, {outcome.reason}"
    failures = [failure for check in outcome.result["checks"] for failure in check["failures"]]
    return ("barred", "; ".join(failures)) if failures else ("ok", "")


def announcements(calibration: dict[str, Any]) -> Iterator[str]:
    """Lines for the terminal on a finished calibration."""
    if calibration["status"] != "ok":
        yield f"{calibration['status']}, {calibration['reason']}"
    elif calibration["reason"]:
        yield f"ceilings are incomplete: {calibration['reason']}"
    found = [one for one in calibration["ceilings"] if one["value"] is not None]
    rates = [f"{one['precision']} {one['value'] / 1e9:,.4g} GFLOP/s" for one in found if one["unit"] == "FLOP/s"]
    rates += [f"copy {one['value'] / 1e9:,.4g} GB/s" for one in found if one["unit"] == "bytes/s"]
    if rates:
        yield f"at best {', '.join(rates)}"
    busy = max((one["conditions"]["others_cores"] or 0.0 for one in found), default=0.0)
    if busy > BUSY_CORES:
        yield f"other processes kept up to {busy:.1f} cores busy meanwhile: what was measured is too low"
    for kind in ("unavailable", "barred"):
        for pair in calibration[kind]:
            yield f"{pair['precision']} {pair['execution']} is {kind}: {pair['reason']}"
