"""Checkpoints survive whatever ends a process, and never reach another run."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from workflow_scripts.lib.checkpoint import NEWEST, PREVIOUS, UNFINISHED, Checkpoints


def content(step: int) -> dict:
    return {"rows": torch.full((step, 2), float(step), dtype=torch.float64), "step": step, "names": ["a", None]}


def test_the_newest_comes_back_as_it_was(tmp_path):
    for step in (1, 2, 3):
        Checkpoints(tmp_path / "c", "guard").save(content(step))
    found = Checkpoints(tmp_path / "c", "guard").load()
    assert torch.equal(found["rows"], content(3)["rows"])
    assert (found["step"], found["names"]) == (3, ["a", None])
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == [NEWEST, PREVIOUS]


def test_without_one_there_is_nothing_to_load_and_nothing_to_say(tmp_path):
    checkpoints = Checkpoints(tmp_path / "none", "guard")
    assert checkpoints.load() is None
    assert checkpoints.notices == []
    assert not (tmp_path / "none").exists()


def test_another_run_starts_anew_and_says_so(tmp_path):
    Checkpoints(tmp_path, "guard").save(content(1))
    other = Checkpoints(tmp_path, "other guard")
    assert other.load() is None
    assert "starts anew" in other.notices[0]


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_torn_file_is_passed_over_for_the_one_before_it(tmp_path, keep):
    checkpoints = Checkpoints(tmp_path, "guard")
    checkpoints.save(content(1))
    checkpoints.save(content(2))
    whole = (tmp_path / NEWEST).read_bytes()
    (tmp_path / NEWEST).write_bytes(whole[:keep])
    assert checkpoints.load()["step"] == 1
    assert "cannot be read" in checkpoints.notices[0]


def test_a_damaged_tensor_is_noticed(tmp_path):
    checkpoints = Checkpoints(tmp_path, "guard")
    checkpoints.save(content(1))
    checkpoints.save({"weights": torch.arange(10_000.0)})
    damaged = bytearray((tmp_path / NEWEST).read_bytes())
    damaged[len(damaged) // 2 : len(damaged) // 2 + 64] = bytes(64)
    (tmp_path / NEWEST).write_bytes(damaged)
    assert checkpoints.load()["step"] == 1


def test_a_lost_newest_leaves_the_one_before_it(tmp_path):
    checkpoints = Checkpoints(tmp_path, "guard")
    checkpoints.save(content(1))
    checkpoints.save(content(2))
    (tmp_path / NEWEST).unlink()  # as between the two renamings
    assert checkpoints.load()["step"] == 1


def test_code_in_a_file_is_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    checkpoints = Checkpoints(tmp_path, "guard")
    torch.save({"format": 1, "guard": "guard", "content": Trap()}, tmp_path / NEWEST)
    assert checkpoints.load() is None
    assert not (tmp_path / "sprung").exists()


KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
import torch
from workflow_scripts.lib.checkpoint import Checkpoints

checkpoints = Checkpoints(Path(sys.argv[1]), "guard")
checkpoints.save({"step": 1})
write = torch.save
def die_half_way(value, file):
    write(value, file)
    file.truncate(file.tell() // 2)
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
torch.save = die_half_way
checkpoints.save({"step": 2})
"""


def test_a_process_killed_while_writing_leaves_the_last_whole_one(tmp_path):
    ended = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path)], cwd=Path(__file__).parents[1])
    assert ended.returncode == -signal.SIGKILL
    assert (tmp_path / UNFINISHED).stat().st_size > 0
    checkpoints = Checkpoints(tmp_path, "guard")
    assert checkpoints.load() == {"step": 1}
    checkpoints.save({"step": 2})
    assert checkpoints.load() == {"step": 2}
