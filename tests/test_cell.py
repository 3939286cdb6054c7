"""Measuring one cell, for real, in this process: what is in the result, and how a cell ends that cannot be measured."""

import dataclasses
import json

import pytest
import torch

from tests.tiny_run import CELL, SHAPE, STEP, write_corpus
from workflow_scripts.lib import cell as cell_module
from workflow_scripts.lib.cell import measure_cell
from workflow_scripts.lib.outcome import Diverged, Unavailable
from workflow_scripts.lib.specs import to_json
from workflow_scripts.lib.step import TrainStep


@pytest.fixture(autouse=True)
def _nothing_compiled_yet():
    torch._dynamo.utils.counters.clear()  # a cell has a process of its own, tests share one


def measure(folder, sent=None, **changes):
    paths = {key: str(path) for key, path in write_corpus(folder).items()}
    cell = to_json(dataclasses.replace(CELL, **changes))
    return measure_cell({"cell": cell, **paths}, (sent if sent is not None else []).append)


def test_a_cells_result_is_whole_and_plain(tmp_path):
    result = measure(tmp_path)
    assert result["stop"] in ("interval", "budget")
    assert len(result["cold_s"]) >= 1
    assert all(seconds > 0 for seconds in result["cold_s"] + result["samples_s"] + result["anchor_s"])
    assert sum(result["cold_s"] + result["samples_s"]) <= result["elapsed_s"]
    assert result["tokens_per_step"] == 4 * 16
    assert result["compile_s"] is None
    assert result["observed"]["threads"] == 1
    assert result["observed"]["n_graphs"] == 0
    assert result["observed"]["weights_drawn_on"] == "cpu"
    assert result["memory"]["peak_allocated_bytes"] is None
    assert result["loss_first"] > result["loss_last"]  # it trained
    assert result["memory"]["data_bytes"] == 0
    assert result["machine"]["before"]["monotonic_s"] < result["machine"]["after"]["monotonic_s"]
    assert result["machine"]["between"]["elapsed_s"] > 0
    assert result["energy"] is None or result["energy"]["n_steps"] > 0  # None where nothing counts it
    json.dumps(result, allow_nan=False)


@pytest.mark.parametrize("mode", ["forward", "forward_backward", "optimizer"])
def test_parts_of_a_step_are_measured_alone(tmp_path, mode):
    result = measure(tmp_path, mode=mode)
    assert len(result["samples_s"]) >= 5
    assert result["loss_last"] == result["loss_first"]  # the next step's batch, again and again, with the same weights
    assert result["observed"]["accumulation"] == 1


def test_what_there_is_so_far_is_sent_after_the_first_step(tmp_path):
    sent = []
    result = measure(tmp_path, sent)
    assert all(set(message) == {"partial"} for message in sent)
    assert sent[0]["partial"]["loss_first"] == result["loss_first"]
    assert sent[0]["partial"]["tokens_per_step"] == 64


def test_a_loss_that_is_no_number_ends_the_cell(tmp_path, monkeypatch):
    original = TrainStep.run

    def poisoned(step):
        original(step)
        if step.steps_done == 7:
            step.loss.fill_(float("nan"))
            with torch.no_grad():
                step.parameters[0].fill_(float("nan"))

    monkeypatch.setattr(TrainStep, "run", poisoned)
    sent = []
    with pytest.raises(Diverged, match=r"the loss is nan after .* last finite loss 2"):
        measure(tmp_path, sent)
    assert sent[-1]["partial"]["loss_last"] > 0


def test_a_cell_that_never_had_a_loss_says_so(tmp_path, monkeypatch):
    original = TrainStep.run

    def poisoned(step):
        original(step)
        step.loss.fill_(float("nan"))

    monkeypatch.setattr(TrainStep, "run", poisoned)
    with pytest.raises(Diverged, match=r"the loss is nan after .* no finite loss before"):
        measure(tmp_path, [])


def test_a_corpus_with_more_tokens_than_the_model_is_refused(tmp_path):
    small = dataclasses.replace(SHAPE, vocab_size=10)
    with pytest.raises(ValueError, match="different tokens, the model's vocab_size is 10"):
        measure(tmp_path, model=small)


def test_what_the_device_cannot_do_is_unavailable(tmp_path):
    with pytest.raises(Unavailable):
        measure(tmp_path, step=dataclasses.replace(STEP, precision="tf32"))


def test_the_batches_do_not_depend_on_execution_or_precision(tmp_path):
    single, half = (measure(tmp_path, step=dataclasses.replace(STEP, precision=p)) for p in ("fp32", "bf16"))
    assert single["observed"]["offsets_sha256"] == half["observed"]["offsets_sha256"]
    assert half["observed"]["linear_output_dtype"] == "bfloat16"


def test_large_models_draw_their_weights_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(cell_module, "DRAWN_ON_DEVICE_ABOVE", 1000)
    assert measure(tmp_path)["observed"]["weights_drawn_on"] == "device"
