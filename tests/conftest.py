"""What several tests share."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests.checkout import Checkout
from tests.isolated_runs import eventually, servers_of
from workflow_scripts.lib.workflow_process import Workflow

# Two processes of tests share two cores (Makefile): with more threads than cores, torch's wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A busy machine is not a fault.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

LONGEST = ("test_workflow", "test_failures")


def pytest_collection_modifyitems(items):
    """Puts the files that run a whole study first, so that no process of tests ends with one while the other idles."""
    items.sort(key=lambda item: item.path.stem not in LONGEST)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The tiny study, run once for real from a fresh checkout; tests copy it and leave it as it is."""
    checkout = Checkout.clone(tmp_path_factory.mktemp("tiny") / "assay")
    checkout.executed = checkout.run("--verbose")
    return checkout


@pytest.fixture(scope="module")
def runtime_folder():
    """A lock and sockets of the tests' own, under a path short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="assay"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_RUNTIME_DIR", str(folder))
        yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def pretended(runtime_folder):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()
    eventually(lambda: not servers_of(process.pid))


@pytest.fixture
def workflow(pretended, monkeypatch):
    """A process that stands for Snakemake, so that fork servers belong to it; the tests share them to save time."""
    monkeypatch.setattr(Workflow, "find", classmethod(lambda cls: cls(psutil.Process(pretended.pid))))
    return pretended
