"""Nsight Systems as a timeline: absent, there, and failing; played by a script that prints what the real one prints."""

import os

import pytest

from workflow_scripts.lib.nsight import NOT_FOUND, device_spans

REPORT = """Processing [report.sqlite] with [cuda_gpu_trace.py]...
Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name
1000,500,12,1,1,1,128,1,1,32,0.000,0.000,,,,,NVIDIA H100 (0),1,,7,"void gemm<float, 4>(int)"
2000,250,13,,,,,,,,,,0.008,8.0,Pageable,Device,NVIDIA H100 (0),1,,7,[CUDA memcpy Host-to-Device]
"""  # noqa: E501


def install(folder, monkeypatch, stats):
    report, asked = folder / "report.csv", folder / "asked"
    report.write_text(REPORT)
    nsys = folder / "nsys"
    nsys.write_text(f'#!/bin/sh\necho "$@" >> {asked}\nif [ "$1" = stats ]; then {stats}; else cat >> {asked}; fi\n')
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin:/bin")
    return report, asked


def test_its_spans_are_read(tmp_path, monkeypatch):
    report = tmp_path / "report.csv"
    _, asked = install(tmp_path, monkeypatch, f"cat {report}")
    spans, said = device_spans("a.module", '{"what": 1}', 10)
    assert spans == [(1000, 1500), (2000, 2250)]
    assert said == "nsys, 2 kernels and copies"
    profiled, given, told = asked.read_text().replace('{"what": 1}', '{"what": 1}\n').splitlines()
    assert profiled.endswith("-m a.module")
    assert "--capture-range=cudaProfilerApi" in profiled
    assert given == '{"what": 1}'
    assert told.startswith("stats --report=cuda_gpu_trace")


@pytest.mark.parametrize(("stats", "said"), [("echo no device >&2; exit 1", "no device"), ("echo SKIPPED", "column")])
def test_what_fails_says_so(tmp_path, monkeypatch, stats, said):
    install(tmp_path, monkeypatch, stats)
    spans, reason = device_spans("a.module", "", 10)
    assert spans is None
    assert reason.startswith("nsys failed: ")
    assert said in reason


def test_without_it_nothing_is_started(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert device_spans("a.module", "", 10) == (None, NOT_FOUND)
