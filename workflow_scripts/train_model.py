"""Trains one run to its end in a process of its own, and goes on with it where an earlier job was killed.

Inputs:
    tokens, corpus: what it is trained and evaluated on.
    device: read by nobody; that the device has been identified comes first.
    calibration: what it bars is recorded as barred, and not measured.
Outputs, written whatever became of the run:
    record: the run's record; times in s, losses in nats per token, memory in bytes. See `training.Training.result`.
    metrics: a row a step with the columns of `history.StepRow`, as far as the run came.
    weights: the final weights; no tensor at all, and the reason as metadata, if the run did not end well.
    samples: text that the trained model wrote, or a line that says why there is none.
"""

from pathlib import Path
from shutil import rmtree
from typing import Any

from safetensors.numpy import save_file

from workflow_scripts.lib.barring import barred_outcome, outsized_outcome
from workflow_scripts.lib.history import StepRow
from workflow_scripts.lib.isolation import run_isolated
from workflow_scripts.lib.job import announce
from workflow_scripts.lib.machine_state import Watch
from workflow_scripts.lib.progress import Listener
from workflow_scripts.lib.records import write_record
from workflow_scripts.lib.specs import DeviceSpec, from_json
from workflow_scripts.lib.whole_files import write_rows

TRAIN = "workflow_scripts.lib.training:train"


def main(
    *,
    tokens: Path,
    corpus: Path,
    device: Path,
    calibration: Path,
    record: Path,
    metrics: Path,
    weights: Path,
    samples: Path,
    spec: dict[str, Any],
) -> None:
    run = spec["run"]
    checkpoints = record.parent / "checkpoint"
    listener = Listener(f"train {run['id']} on {run['device']['id']}", announce)
    paths = {"tokens": tokens, "corpus": corpus, "metrics": metrics, "weights": weights, "samples": samples}
    arguments = {"run": run, "code": spec["code"], "checkpoints": str(checkpoints)}
    arguments |= {name: str(path) for name, path in paths.items()}
    where = from_json(DeviceSpec, run["device"])
    with Watch(where) as watch:
        outcome = (
            outsized_outcome(spec)
            or barred_outcome(calibration, run["step"])
            or run_isolated(
                TRAIN,
                arguments,
                device=where,
                timeout_s=run["timeout_s"],
                on_message=listener.hear,
                compiled=record.parents[1] / "compiled",
            )
        )
    if outcome.status != "ok":
        ended = f"{outcome.status}: {outcome.reason}"
        write_rows(metrics, StepRow._fields, (row.written() for row in listener.rows))
        save_file({}, weights, metadata={"status": outcome.status, "reason": outcome.reason})
        samples.write_text(f"No sample: the run did not end well ({ended}).\n", encoding="utf-8")
        listener.tell(ended)
    write_record(
        record,
        kind="run",
        id=run["id"],
        asked=run,
        spec=spec,
        outcome=watch.put_into(outcome),
    )
    if outcome.status == "ok":  # only now is nothing lost without them
        rmtree(checkpoints, ignore_errors=True)


if "snakemake" in globals():
    from workflow_scripts.lib.job import run_job

    run_job(main, snakemake)  # noqa: F821
