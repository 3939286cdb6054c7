"""Folders of compiled code: shared only where asked, and never after a process that may have left half a library."""

from pathlib import Path

from workflow_scripts.lib.compiled_code import compiled_folder


def use(shared: Path, *, well: bool) -> list[str]:
    """Leaves one more library in a shared folder; gives those that were found there."""
    with compiled_folder(shared) as (folder, keep):
        found = sorted(path.name for path in Path(folder).glob("*.so"))
        (Path(folder) / f"{len(found)}.so").touch()
        keep(well)
    return found


def test_each_process_finds_an_empty_folder_that_is_gone_afterwards():
    with compiled_folder(None) as (folder, keep):
        assert list(Path(folder).iterdir()) == []
        keep(True)
    assert not Path(folder).exists()


def test_a_shared_folder_keeps_what_processes_left_that_ended_well(tmp_path):
    shared = tmp_path / "compiled"
    assert use(shared, well=True) == []
    assert use(shared, well=True) == ["0.so"]


def test_a_shared_folder_is_begun_anew_after_a_process_that_was_killed(tmp_path):
    shared = tmp_path / "compiled"
    use(shared, well=True)
    use(shared, well=False)
    assert use(shared, well=True) == []
