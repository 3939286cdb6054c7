"""The machine's state during a measurement, as columns: what disturbed it, and what it ran at. Missing is missing."""

import statistics
from collections.abc import Sequence
from typing import Any

SLOWEST_PACE = 1.25  # of steps whose energy is counted, over the step time: launch-bound steps wander by 10 to 20 %
MACHINE_COLUMNS = ("others_cores", "on_battery", "clock_mhz", "temperature_c", "throttle", "card")


def machine_columns(result: dict[str, Any]) -> dict[str, Any]:
    """Summarises the `machine` of a result.

    Returns:
        `others_cores`: processor cores that other processes kept busy on average; `on_battery`: at any moment;
        `clock_mhz` (median) and `temperature_c` (largest) of the device, looked at during and right after; `throttle`:
        the reasons seen, `none` where there was none; `card`: the GPU's own name, of several equal ones.
    """
    machine = result.get("machine") or {}
    before, after = machine.get("before") or {}, machine.get("after") or {}
    looks = [*(machine.get("during") or []), *([_look(after)] if after else [])]
    clocks, temperatures = _known(looks, "clock_hz"), _known(looks, "temperature_c")
    mains = [state["host"].get("on_mains") for state in (before, after) if state] + [one["on_mains"] for one in looks]
    mains = [one for one in mains if one is not None]
    return {
        "others_cores": (machine.get("between") or {}).get("others_cores"),
        "on_battery": not all(mains) if mains else None,
        "clock_mhz": statistics.median(clocks) / 1e6 if clocks else None,
        "temperature_c": max(temperatures, default=None),
        "throttle": _throttle(before, after, looks),
        "card": (after.get("gpu") or before.get("gpu") or {}).get("uuid"),
    }


def energy_per_step_j(result: dict[str, Any], steps_s: Sequence[float]) -> float | None:
    """Joules of one step; None where they were not counted, or at another pace than that of the steps in `steps_s`.

    Between steps that wait for something else a device rests, and what it uses meanwhile is not the step's.
    """
    energy = result.get("energy")
    if not energy or not steps_s:
        return None
    slowest_s = SLOWEST_PACE * energy["n_steps"] * statistics.median(steps_s)
    return energy["energy_j"] / energy["n_steps"] if energy["elapsed_s"] <= slowest_s else None


def _look(state: dict[str, Any]) -> dict[str, Any]:
    gpu = state["gpu"]
    part, clock = (state["host"], "cpu_frequency_hz") if gpu is None else (gpu, "sm_clock_hz")
    return {
        "clock_hz": part.get(clock),
        "temperature_c": part.get("temperature_c"),
        "throttle_reasons": part.get("throttle_reasons"),
        "on_mains": state["host"].get("on_mains"),
    }


def _known(looks: Sequence[dict[str, Any]], name: str) -> list[float]:
    return [one[name] for one in looks if one.get(name) is not None]


def _throttle(before: dict[str, Any], after: dict[str, Any], looks: Sequence[dict[str, Any]]) -> str | None:
    """A GPU tells reasons; a CPU how often it was throttled."""
    seen = [reasons for one in looks if (reasons := one.get("throttle_reasons")) is not None]
    if seen:
        return "; ".join(dict.fromkeys(reason for reasons in seen for reason in reasons)) or "none"
    counts = [(state.get("host") or {}).get("cpu_throttle_count") for state in (before, after)]
    if None in counts:
        return None
    return f"thermal, {counts[1] - counts[0]} times" if counts[1] > counts[0] else "none"
