"""The digest of a script's code covers what can change its result, and nothing else."""

import json

import pytest

from workflow_scripts.lib import provenance
from workflow_scripts.lib.provenance import ROOT, code_digest, modules_of, spec

MEASURING = ["benchmark_cell", "train_model", "profile_model", "measure_memory", "cross_check_timers"]


@pytest.mark.parametrize("script", MEASURING)
def test_a_measuring_digest_contains_step_and_model_and_no_bookkeeping(script):
    names = {path.stem for path in modules_of(f"workflow_scripts/{script}.py")}
    assert {"step", "model", "optimizers", "batches"} <= names
    assert not names & {"plotting", "page", "claims", "records", "job", "tables", "provenance", "machine_state"}


# What Python's versions print or parse each in their own way: strings within strings, and empty fields.
ANY_PYTHON = """\
from dataclasses import dataclass as data


@data
class Row:
    names: list[str]

    def told(self, width, **more) -> str:
        match more:
            case {"unit": str(unit)}:
                return f"{', '.join(self.names)!r:>{width}}{unit}{width:.{width}f}" + u"x"
        return lambda: {f"{more['unit']}": 1e-3, "b": b"00"}
"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A little repository: a script, a module that it imports, and a child's target that it names."""
    lib = tmp_path / "workflow_scripts" / "lib"
    lib.mkdir(parents=True)
    (lib / "timing.py").write_text("def wait():\n    return 1\n")
    (lib / "child.py").write_text("from workflow_scripts.lib.timing import wait\n\nSTEPS = 3\n")
    (lib / "plotting.py").write_text("COLOUR = 1\n")
    (lib / "records.py").write_text("VERSION = 1\n")
    script = "workflow_scripts/measure.py"
    (tmp_path / script).write_text(
        '"""Measures."""\n\nfrom workflow_scripts.lib import records\n\nTARGET = "workflow_scripts.lib.child:run"\n'
    )
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    return tmp_path


def digest_anew():
    """Digest of the script, as another process would find it."""
    provenance.code_digest.cache_clear()
    provenance._behaviour.cache_clear()
    return code_digest("workflow_scripts/measure.py")


def digest_after(repository, file, text):
    """Digest of the script before and after an edit."""
    before = digest_anew()
    (repository / file).write_text(text)
    return before, digest_anew()


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("workflow_scripts/lib/child.py", "from workflow_scripts.lib.timing import wait\n\nSTEPS = 4\n"),
        ("workflow_scripts/lib/timing.py", "def wait():\n    return 2\n"),
        ("workflow_scripts/measure.py", 'TARGET = "workflow_scripts.lib.child:walk"\n'),
    ],
)
def test_behaviour_changes_the_digest(repository, file, text):
    before, after = digest_after(repository, file, text)
    assert before != after


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("workflow_scripts/lib/timing.py", '"""Doc."""\n\n\ndef wait():\n    """Waits."""\n    return 1  # why\n'),
        ("workflow_scripts/lib/plotting.py", "COLOUR = 2\n"),
        ("workflow_scripts/lib/records.py", "VERSION = 2\n"),
    ],
)
def test_comments_docstrings_strangers_and_bookkeeping_do_not(repository, file, text):
    before, after = digest_after(repository, file, text)
    assert before == after


def test_every_python_reads_the_same_behaviour():
    assert provenance._read_behaviour(ANY_PYTHON.encode(), "any.py").digest.startswith("e92486700c6ff506")


def test_what_was_read_is_kept_and_read_anew_where_it_is_spoilt(repository, monkeypatch):
    digest = digest_anew()
    kept = sorted((repository / ".snakemake" / "behaviour").iterdir())
    assert [path.name for path in kept] == [
        f"workflow_scripts.{name}.py.json" for name in ("lib.child", "lib.timing", "measure")
    ]
    with monkeypatch.context() as patch:
        patch.delattr(provenance, "_read_behaviour")
        assert digest_anew() == digest
    kept[0].write_text(kept[0].read_text()[:-1])
    kept[1].unlink()
    assert digest_anew() == digest


def test_spec_is_canonical():
    one = spec("resolve_study", b=1, a={"y": 0.001, "x": [1, 2]})
    assert one == spec("resolve_study", a={"x": [1, 2], "y": 1e-3}, b=1)
    assert json.loads(one)["code"] == code_digest("workflow_scripts/resolve_study.py")


def test_every_script_has_a_digest():
    for script in sorted((ROOT / "workflow_scripts").glob("[a-z]*.py")):
        assert len(code_digest(f"workflow_scripts/{script.name}")) == 16
