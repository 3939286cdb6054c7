"""The tail of every script, in a process of its own, with Snakemake's own kind of lists."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SCRIPT = """
import json, logging, os, subprocess, sys
from types import SimpleNamespace
from snakemake.iocontainers import InputFiles, Log, OutputFiles, Params
from workflow_scripts.lib.job import announce, run_job
from workflow_scripts.lib.lost_device import DeviceLost

def files(kind, values):
    made = kind()
    for name, value in values.items():
        start = len(made)
        made.extend([value] if isinstance(value, str) else value)
        made._set_name(name, start, end=None if isinstance(value, str) else len(made))
    return made

def main(**arguments):
    print("printed")
    logging.getLogger("lib").info("logged")
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    announce("said\\nonce")
    os.write(1, repr(sorted(arguments.items())).encode())
    if arguments["spec"].get("fail"):
        raise RuntimeError("it broke")
    if arguments["spec"].get("lost"):
        raise DeviceLost("device cuda0 is gone: bring it back")

given = json.loads(sys.argv[1])
run_job(main, SimpleNamespace(
    input=files(InputFiles, given.get("input", {})),
    output=files(OutputFiles, given.get("output", {})),
    params=SimpleNamespace(spec=json.dumps(given.get("spec", {}))),
    log=Log(fromdict={}) if given.get("no_log") else ["logs/deep/a.log"],
))
"""


def run(tmp_path, **given):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-c", SCRIPT, json.dumps(given)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    log = tmp_path / "logs" / "deep" / "a.log"
    return done, log.read_text() if log.exists() else None


def test_names_become_paths_and_all_output_is_logged(tmp_path):
    given = {"input": {"one": "a", "many": ["b", "c"], "single": ["d"], "none": []}, "output": {"out": "e"}}
    done, log = run(tmp_path, **given, spec={"n": 1})
    assert done.returncode == 0
    assert (
        "[('many', [PosixPath('b'), PosixPath('c')]), ('none', []), ('one', PosixPath('a')), "
        "('out', PosixPath('e')), ('single', [PosixPath('d')]), ('spec', {'n': 1})]"
    ) in log
    assert [word in log for word in ("printed", "logged", "from a child", "said once")] == [True] * 4
    assert done.stderr == "said once\n"
    assert done.stdout == ""


def test_a_failure_is_told_in_the_log_and_on_the_terminal(tmp_path):
    done, log = run(tmp_path, spec={"fail": True})
    assert done.returncode == 1
    for text in (log, done.stderr):
        assert text.count("RuntimeError: it broke") == 1
        assert "Traceback" in text
    assert log.index("printed") < log.index("Traceback")


def test_a_lost_device_is_one_line_on_the_terminal(tmp_path):
    done, log = run(tmp_path, spec={"lost": True})
    assert done.returncode == 1
    assert done.stderr.splitlines()[1:] == ["device cuda0 is gone: bring it back"]
    assert "Traceback" in log


def test_without_a_log_everything_stays_on_the_terminal(tmp_path):
    done, log = run(tmp_path, no_log=True)
    assert log is None
    assert "printed" in done.stdout
    assert "said once" in done.stderr


def test_a_new_log_replaces_the_old_one(tmp_path):
    run(tmp_path, spec={"n": "first"})
    _, log = run(tmp_path, spec={"n": "second"})
    assert "first" not in log


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"input": {"same": "a"}, "output": {"same": "b"}}, "the name 'same' is taken"),
        ({"output": {"spec": "b"}}, "the name 'spec' is taken"),
    ],
)
def test_names_must_be_distinct(tmp_path, given, message):
    done, _ = run(tmp_path, **given)
    assert message in done.stderr
