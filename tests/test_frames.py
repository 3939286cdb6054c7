"""No call of measured code asks the system for memory for its frame."""

import sys

import pytest
import torch

from benchmarks.frames import in_thread, pages_a_call
from tests.isolated_runs import run


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="later releases of Python keep what was given")
def test_calls_at_the_end_of_a_chunk_ask_for_memory_again_and_again():
    assert in_thread(pages_a_call, "without_room") > 0.9


def test_with_room_they_do_not():
    assert in_thread(pages_a_call, "with_room") < 0.1


@pytest.mark.usefixtures("runtime_folder")
def test_a_measuring_process_has_room():
    assert run("call_often").result["pages_a_call"] < 0.1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.usefixtures("runtime_folder")
def test_backward_passes_of_a_gpu_have_room():
    assert run("call_often_in_backward").result["pages_a_call"] < 0.1
