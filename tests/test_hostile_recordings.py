"""What is no recording, or one with harm in it, is refused in one line before any of it is unpacked."""

import hashlib
import json
import stat
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.example_recording import STUDY, members, pack, refusal
from workflow_scripts.lib import archive
from workflow_scripts.lib.archive import Refused
from workflow_scripts.lib.recordings import MANIFEST, read_recording


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return pack(tmp_path_factory.mktemp("box"))


@pytest.fixture
def folder(tmp_path):
    """recordings/example/ with the example's recording."""
    return pack(tmp_path).parent


def zipped(path, name, content=b"{}", **changes):
    """Adds a member to an archive as an attacker would, without a look at its manifest."""
    info = zipfile.ZipInfo(name)
    for key, value in changes.items():
        setattr(info, key, value)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(info, content)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("../../outside.json", {}, "leads out"),
        ("devices/../../outside.json", {}, "leads out"),
        ("/etc/cron.d/outside.json", {}, "no plain relative path"),
        ("C:/outside.json", {}, "no plain relative path"),
        ("devices\\box\\outside.json", {}, "no plain relative path"),
        ("devices/box/link.json", {"external_attr": (stat.S_IFLNK | 0o777) << 16}, "link"),
        ("devices/box/pipe.json", {"external_attr": (stat.S_IFIFO | 0o666) << 16}, "special file"),
        ("devices/box/model.pkl", {}, "none of"),
        ("devices/box/runs/wide-s1/model.safetensors", {}, "none of"),
        ("devices/box/.hidden.json", {}, "hidden"),
        ("devices/box/more.json", {}, "not in its manifest"),
        ("devices/box/lzma.json", {"compress_type": zipfile.ZIP_LZMA}, "compressed by method 14"),
        ("devices/box/device.json", {}, "stands twice"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_hostile_member_is_refused(folder, name, changes, words):
    zipped(folder / "box.zip", name, **changes)
    assert words in refusal(folder)


def test_a_bomb_is_refused_before_it_is_unpacked(folder, monkeypatch):
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("unpacked"))
    zipped(folder / "box.zip", "devices/box/bomb.json", b"0" * 2**24, compress_type=zipfile.ZIP_BZIP2)
    assert "unpacks to 16,777,216 bytes" in refusal(folder)


@pytest.mark.parametrize(
    ("limit", "words"), [("MOST_MEMBERS", "members, more than 3"), ("MOST_BYTES", "bytes, more than 3")]
)
def test_an_archive_beyond_the_limits_is_refused(folder, monkeypatch, limit, words):
    monkeypatch.setattr(archive, limit, 3)
    assert words in refusal(folder)


def test_an_encrypted_member_is_refused(folder):
    path = folder / "box.zip"
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 8] |= 1  # general purpose flags of the last entry of the central directory
    path.write_bytes(content)
    assert "encrypted" in refusal(folder)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_recording_is_refused(folder, content):
    (folder / "box.zip").write_bytes(content)
    assert refusal(folder).endswith("or delete the file")


@settings(max_examples=60)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_reads_as_it_was(packed, data, tmp_path_factory):
    content = bytearray(packed.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("damaged") / "box.zip"
    path.write_bytes(content)
    try:
        assert read_recording(path, STUDY).members == read_recording(packed, STUDY).members
    except Refused as fault:
        assert "\n" not in str(fault)


def test_an_edited_record_is_refused(folder):
    path = folder / "box.zip"
    with zipfile.ZipFile(path) as file:
        whole = {name: file.read(name) for name in file.namelist()}
    cell = "devices/box/cells/tiny.json"
    archive.pack(path, {**whole, cell: whole[cell].replace(b"0.011", b"0.001")})
    message = refusal(folder)
    assert cell in message
    assert "was changed after it was packed" in message


@pytest.mark.parametrize(
    ("member", "change", "words"),
    [
        ("cells/tiny.json", {"status": "great"}, "status"),
        ("cells/tiny.json", {"record_version": 99}, "record_version"),
        ("cells/tiny.json", {"study": "other"}, "its study is 'other', where 'example' belongs"),
        ("cells/tiny.json", {"kind": "run"}, "its kind is 'run'"),
        ("cells/tiny.json", {"id": "other"}, "its id is 'other'"),
        ("cells/tiny.json", {"result": {"samples_s": ["fast"]}}, "samples_s"),
        ("cells/tiny.json", {"result": {"samples_s": 3}}, "samples_s"),
        (
            "cells/tiny.json",
            {"result": {"energy": {"energy_j": 1.0, "n_steps": 0, "elapsed_s": 1.0}}},
            "n_steps",
        ),
        ("cells/tiny.json", {"spec": {}}, "not as it should be"),
        ("device.json", {"device": "other"}, "it is of device 'other'"),
        ("device.json", {"type": "abacus"}, "type"),
        ("calibration.json", {"ceilings": [{}]}, "ceilings"),
    ],
)
def test_a_record_of_another_form_is_refused_though_its_digest_is_right(folder, member, change, words):
    name = f"devices/box/{member}"
    record = json.loads(members(folder / "box.zip")[name])
    whole = {**members(folder / "box.zip"), name: json.dumps({**record, **change}).encode()}
    pack(folder.parents[1], members=whole)  # with a manifest of what it holds now, as its maker could
    message = refusal(folder)
    assert name in message
    assert words in message


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("devices/box/runs/wide-s1/metrics.csv", b"step,loss\n1,2\n", "lacks the column tokens"),
        ("devices/box/runs/wide-s1/metrics.csv", None, "'much', no number"),
        ("devices/box/cells/tiny.json", b'{"a": NaN}', "NaN is no number"),
        ("devices/box/cells/tiny.json", b'{"a": 1e999}', "too large"),
        ("devices/box/cells/tiny.json", b"[" * 100_000, "no JSON of ours"),
        ("devices/box/cells/tiny.json", b"\xff", "not as it should be"),
        ("devices/box/readme.txt", b"", "no file of a device's records"),
        ("devices/other/cells/tiny.json", b"{}", "no file of a device's records"),
    ],
)
def test_a_file_of_another_form_is_refused(folder, name, content, words):
    path = folder / "box.zip"
    content = members(path)[name].replace(b",0.01,", b",much,") if content is None else content
    whole = {**members(path), name: content}
    manifest = json.loads(zipfile.ZipFile(path).read(MANIFEST))
    manifest["members"] = {one: hashlib.sha256(held).hexdigest() for one, held in whole.items()}
    archive.pack(path, {**whole, MANIFEST: json.dumps(manifest).encode()})
    assert words in refusal(folder)
