"""Measurements end as they should, alone on the machine, and leave nothing behind."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.isolated_runs import cpu, eventually, is_gone, linux_only, run, servers_of
from workflow_scripts.lib import isolation
from workflow_scripts.lib.outcome import is_out_of_memory
from workflow_scripts.lib.process_memory import host_oom_kills, peak_process_bytes

ROOT = Path(__file__).parents[1]
MIB = 2**20
pytestmark = pytest.mark.usefixtures("runtime_folder")


def test_a_result_comes_back_with_threads_set_and_nan_missing():
    messages = []
    outcome = run("succeed", {"a": [1, "é"]}, device=cpu(3), on_message=messages.append)
    assert (outcome.status, outcome.reason) == ("ok", "")
    assert outcome.result == {"got": {"a": [1, "é"]}, "nan": None, "threads": "3"}
    assert messages == [{"progress": 1}]
    assert outcome.started_at < outcome.ended_at
    assert outcome.wall_s > 0


@pytest.mark.parametrize(
    ("how", "status", "reason"),
    [
        ("error", "error", "ValueError: two lines"),
        ("host_memory", "oom", "MemoryError: no room"),
        ("cuda_memory", "oom", "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB"),
        (
            "cpu_memory",
            "oom",
            "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes",
        ),
        ("unavailable", "unavailable", "no C++ compiler"),
        ("diverged", "diverged", "at step 7"),
        ("barred", "barred", "leaks the future"),
        ("exit", "error", "SystemExit: 2"),
    ],
)
def test_exceptions_become_statuses_and_keep_the_partial_result(how, status, reason):
    outcome = run("fail", {"how": how})
    assert (outcome.status, outcome.reason, outcome.result) == (status, reason, {"n": 7})


def test_a_child_looks_for_compiled_kernels_in_its_own_folder_alone(monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "/warm")
    assert "TRITON_CACHE_DIR" not in isolation.child_environment(cpu(1))


def test_segments_of_gpu_memory_grow_unless_a_person_says_otherwise(monkeypatch):
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    assert isolation.child_environment(cpu(1))["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")
    assert isolation.child_environment(cpu(1))["PYTORCH_ALLOC_CONF"] == "backend:cudaMallocAsync"


@linux_only
@pytest.mark.parametrize("fresh", [True, False])
def test_a_child_keeps_what_it_freed(fresh):
    """Of 64 MiB, of which glibc never keeps a block by itself; the person's own setting stands."""
    own = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1048576"}
    kept, given_back = (
        run("fill_again", {"elements": 2**24}, fresh=fresh, environment=environment).result["pages"]
        for environment in (None, own)
    )
    assert 2 * kept < given_back


def test_an_allocation_beyond_memory_is_oom():
    assert run("allocate", {"bytes": 2**60}).status == "oom"


def test_out_of_memory_is_found_behind_a_wrapping_error():
    wrapped = RuntimeError("backend failed")
    wrapped.__cause__ = MemoryError()
    assert is_out_of_memory(wrapped)
    assert not is_out_of_memory(KeyError("can't allocate memory"))


def test_a_hang_ends_in_time_with_its_partial_result_and_its_children(tmp_path):
    pids = tmp_path / "pids"
    outcome = run("hang", {"pids": str(pids)}, timeout_s=1.5)
    assert (outcome.status, outcome.result) == ("timeout", {"n": 3})
    assert outcome.reason == "stopped after 1.5 s"
    for pid in map(int, pids.read_text().split()):
        eventually(lambda pid=pid: is_gone(pid))


def test_what_a_finished_child_leaves_behind_is_killed():
    left = run("leave").result["left"]
    eventually(lambda: is_gone(left))


def test_signals_are_named(monkeypatch):
    outcome = run("die", {"signal": "SIGKILL"})
    assert (outcome.status, outcome.reason, outcome.result) == ("killed", "killed by SIGKILL", {"n": 2})
    assert outcome.peak_process_bytes is None
    assert run("die", {"signal": "SIGSEGV"}).reason == "killed by SIGSEGV"


def test_a_kill_while_the_host_counts_oom_kills_is_oom(monkeypatch):
    counts = iter([4, 5])
    monkeypatch.setattr(isolation, "host_oom_kills", lambda: next(counts))
    assert run("die", {"signal": "SIGKILL"}).status == "oom"


def test_an_end_without_a_word_is_an_error():
    assert run("vanish").reason == "the process ended with exit status 3 and without a result"
    assert run("unprintable").reason.startswith("TypeError")
    assert run("no_such_function").reason.startswith("AttributeError")


def test_a_short_peak_is_seen():
    outcome = run("hold", {"bytes": 200 * MIB})
    assert outcome.peak_process_bytes >= 200 * MIB


def test_peak_of_a_foreign_or_dead_process_is_missing_not_zero():
    assert peak_process_bytes(2**22 + 1) is None


def test_oom_kills_are_read_from_both_kinds_of_control_group(tmp_path):
    proc, mount = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (mount / "a").mkdir(parents=True)
    (mount / "memory" / "b").mkdir(parents=True)
    assert host_oom_kills(proc, mount) is None
    (proc / "vmstat").write_text("nr_free_pages 1\noom_kill 9\n")
    assert host_oom_kills(proc, mount) == 9
    (proc / "self" / "cgroup").write_text("4:memory:/b\n")
    (mount / "memory" / "b" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert host_oom_kills(proc, mount) == 2
    (proc / "self" / "cgroup").write_text("0::/a\n")
    (mount / "a" / "memory.events").write_text("low 0\noom 3\noom_kill 1\n")
    assert host_oom_kills(proc, mount) == 1


def test_output_of_the_child_lands_in_the_output_of_the_job(capfd, tmp_path):
    run("fail", {"how": "error"})
    run("hang", {"pids": str(tmp_path / "pids")}, timeout_s=1.5)
    captured = capfd.readouterr()
    assert "ValueError: two\nlines" in captured.err
    assert "said before the end" in captured.out


def test_the_lock_keeps_two_measurements_apart_and_a_waiting_one_says_so(tmp_path, caplog):
    mark = tmp_path / "mark"
    first = threading.Thread(target=run, args=("occupy", {"mark": str(mark), "seconds": 1.0}))
    first.start()
    eventually(mark.exists)
    with caplog.at_level("INFO"):
        assert run("succeed").status == "ok"
    assert not mark.exists()
    first.join()
    assert [record.name for record in caplog.records if "another measurement" in record.message] == ["assay.terminal"]


def test_the_lock_is_open_to_all_users(runtime_folder):
    old = os.umask(0o077)
    try:
        run("succeed")
    finally:
        os.umask(old)
    assert (runtime_folder / "assay-measuring.lock").stat().st_mode & 0o777 == 0o666


HANG = """
import os, sys
from tests.test_isolation import run
run("hang", {"pids": sys.argv[1]}, timeout_s=600)
"""
# Named as Snakemake, it runs two jobs one after the other.
SNAKEMAKE = """
import pathlib, subprocess, sys
for name in ("first", "second"):
    job = subprocess.Popen([sys.executable, "-c", pathlib.Path("job.py").read_text(), name])
    pathlib.Path(name + "_job").write_text(str(job.pid))
    job.wait()
"""


def started_pids(path: Path) -> list[int]:
    eventually(lambda: path.exists() and len(path.read_text().split()) == 2, 60)
    return [int(word) for word in path.read_text().split()]


def test_nothing_survives_a_killed_job(tmp_path):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    job = subprocess.Popen([sys.executable, "-c", HANG, str(tmp_path / "pids")], env=environment)
    pids = started_pids(tmp_path / "pids")
    job.kill()
    job.wait()
    for pid in pids:
        eventually(lambda pid=pid: is_gone(pid))


@linux_only
def test_nothing_survives_a_killed_job_or_workflow_with_a_fork_server(tmp_path):
    (tmp_path / "job.py").write_text(HANG)
    (tmp_path / "snakemake").write_text(SNAKEMAKE)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    snakemake = subprocess.Popen([sys.executable, str(tmp_path / "snakemake")], env=environment, cwd=tmp_path)

    pids = started_pids(tmp_path / "first")
    os.kill(int((tmp_path / "first_job").read_text()), signal.SIGKILL)
    for pid in pids:
        eventually(lambda pid=pid: is_gone(pid))
    assert len(servers_of(snakemake.pid)) == 1

    pids = started_pids(tmp_path / "second")
    snakemake.kill()
    snakemake.wait()
    for pid in [*pids, int((tmp_path / "second_job").read_text())]:
        eventually(lambda pid=pid: is_gone(pid))
    eventually(lambda: not servers_of(snakemake.pid))
