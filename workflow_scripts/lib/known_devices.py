"""The devices whose step times are known: those of a study that was run here, or else those recorded elsewhere."""

import csv
import json
from pathlib import Path
from typing import Any

import dacite

from workflow_scripts.lib.cost_fits import fit_device
from workflow_scripts.lib.forecast import Forecaster, read_forecaster
from workflow_scripts.lib.record_files import read_text, recorded
from workflow_scripts.lib.recordings import read_recording
from workflow_scripts.lib.tables import cell_row


def known_devices(results: Path, recordings: Path) -> tuple[list[dict[str, Any]], Forecaster]:
    """Finds the devices of a study (device, origin, type, name, memory_bytes), and what predicts steps on them.

    Args:
        results: results/{study}; what it has read of recordings is in it.
        recordings: recordings/{study}, where the study was not run here.

    Raises:
        ValueError: there is neither, or a recording is none.
    """
    table, cost_model = results / "tables" / "devices.csv", results / "cost_model.json"
    if table.is_file() and cost_model.is_file():
        with table.open(newline="", encoding="utf-8") as file:
            devices: list[dict[str, Any]] = list(csv.DictReader(file))
        try:
            return devices, read_forecaster(cost_model, devices)
        except (KeyError, dacite.DaciteError) as fault:
            raise ValueError(f"{cost_model} was written by another version: run study {results.name} again") from fault
    archives = sorted(recordings.glob("*.zip"))
    if not archives:
        raise ValueError(
            f"--study {results.name} has neither a cost model in {results} nor recordings in {recordings}: run it "
            "first, or name another --study"
        )
    devices, costs = [], {}
    for archive in archives:
        device = read_recording(archive, results.name).id
        (this,) = recorded([archive], "device.json")
        told = json.loads(read_text(this))
        devices.append({"device": device, "origin": "recorded", **told["detected"], **told})
        rows = [cell_row(path) for path in recorded([archive], "cells/*.json")]
        for calibration in recorded([archive], "calibration.json"):
            costs[device] = fit_device(rows, json.loads(read_text(calibration)))
    return devices, Forecaster.of(costs, devices)
