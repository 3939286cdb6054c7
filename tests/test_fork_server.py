"""The fork server: children as good as fresh processes, and nothing of it left behind."""

import os
import threading
from functools import partial
from pathlib import Path

import pytest

from tests.isolated_runs import cpu, eventually, is_gone, linux_only, run, servers_of
from workflow_scripts.lib import fork_server
from workflow_scripts.lib.specs import DeviceSpec
from workflow_scripts.lib.workflow_process import is_snakemake

ROOT = Path(__file__).parents[1]
MIB = 2**20
pytestmark = pytest.mark.usefixtures("runtime_folder")


@linux_only
def test_a_fork_is_as_good_as_a_fresh_process(workflow, monkeypatch):
    train = partial(run, "train", targets="tests.isolated_training:")
    outcomes = {}
    for threads in (1, 2):
        outcomes[threads] = train(device=cpu(threads))
    monkeypatch.setenv("STRAY", "set after the server started")
    again = train(device=cpu(2))
    fresh = train(device=cpu(2), fresh=True)

    assert [outcome.start for outcome in (outcomes[1], outcomes[2], again, fresh)] == ["forked"] * 3 + ["fresh"]
    for threads, outcome in [*outcomes.items(), (2, again), (2, fresh)]:
        assert outcome.status == "ok", outcome.reason
        assert outcome.result["torch_threads"] == threads
        assert outcome.result["variable"] == str(threads)
        assert outcome.result["leader"]
        assert outcome.result["folder"] == str(Path.cwd())
    assert outcomes[2].result["losses"] == again.result["losses"] == fresh.result["losses"]
    assert again.result["tasks"] == outcomes[2].result["tasks"] > outcomes[1].result["tasks"]
    # An idle thread of OpenBLAS, which numpy loads, ends where a process first forks.
    assert again.result["tasks"] <= fresh.result["tasks"] <= again.result["tasks"] + 1
    assert again.result["stray"] == "set after the server started"
    assert again.result["descriptors"] <= fresh.result["descriptors"] + 1  # no socket or pidfd of the server's
    assert again.result["parent"] == outcomes[2].result["parent"]  # one server served both


@linux_only
def test_forked_children_end_as_others_do(workflow, tmp_path):
    assert run("succeed", device=cpu(2)).start == "forked"
    assert run("fail", {"how": "cuda_memory"}, device=cpu(2)).status == "oom"
    assert run("die", {"signal": "SIGKILL"}, device=cpu(2)).reason == "killed by SIGKILL"
    assert run("die", {"signal": "SIGSEGV"}, device=cpu(2)).reason == "killed by SIGSEGV"
    pids = tmp_path / "pids"
    assert run("hang", {"pids": str(pids)}, device=cpu(2), timeout_s=1.5).status == "timeout"
    for pid in map(int, pids.read_text().split()):
        eventually(lambda pid=pid: is_gone(pid))
    assert run("hold", {"bytes": 200 * MIB}, device=cpu(2)).peak_process_bytes >= 200 * MIB


@linux_only
def test_a_server_lost_during_a_measurement_means_measuring_again(workflow, tmp_path):
    mark = tmp_path / "mark"
    killer = threading.Thread(
        target=lambda: (eventually(mark.exists, 60), [server.kill() for server in servers_of(workflow.pid)])
    )
    killer.start()
    outcome = run("occupy", {"mark": str(mark), "seconds": 2.0}, device=cpu(2))
    killer.join()
    assert (outcome.status, outcome.start) == ("ok", "fresh")


@linux_only
def test_a_server_that_refuses_or_cannot_start_means_a_plain_process(workflow, monkeypatch, runtime_folder, caplog):
    monkeypatch.setattr(fork_server, "_SERVER", "workflow_scripts.lib.no_such_module")
    assert run("succeed", device=cpu(3)).start == "fresh"
    monkeypatch.setattr(fork_server, "_SERVER", "workflow_scripts.lib.fork_process")
    private = runtime_folder / f"assay-{os.getuid()}"
    private.chmod(0o755)
    try:
        assert run("succeed", device=cpu(3)).start == "fresh"
    finally:
        private.chmod(0o700)
    assert sum("no fork server" in record.message for record in caplog.records) == 2


def test_only_cpu_and_cuda_are_forked():
    assert not fork_server.can_fork(DeviceSpec(id="mps", type="mps", threads=1))


def test_snakemake_is_known_by_its_command_line():
    class Process:
        def __init__(self, *words):
            self.cmdline = lambda: list(words)

    assert is_snakemake(Process("/venv/bin/python", "/venv/bin/snakemake", "--cores", "2"))
    assert is_snakemake(Process("/venv/bin/snakemake"))
    assert is_snakemake(Process("python", "-m", "snakemake"))
    assert not is_snakemake(Process("vim", "-n", "snakemake"))
    assert not is_snakemake(Process())
