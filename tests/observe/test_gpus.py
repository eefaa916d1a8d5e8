"""The use of GPUs in the statistics and on the dashboard, by a program that answers like nvidia-smi."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import penstock as ps
from penstock.dashboard.live import LiveQuery

NVIDIA_SMI = """#!/bin/sh
echo "$@" > {folder}/arguments
echo "0, 80, 1000, 2000, 350.5"
echo "1, 40, 500, 2000, [N/A]"
echo sampled > {folder}/fifo
exec sleep 1000
"""


def test_a_query_with_gpus_reports_their_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI.format(folder=tmp_path))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    fifo = str(tmp_path / "fifo")

    @ps.func(gpus=1, max_concurrency=1)
    def wait(number: int) -> str:
        with open(fifo) as sampled:
            return sampled.read().strip()

    live = LiveQuery()
    ps.attach_subscriber(live)
    try:
        df = ps.from_pydict({"x": [1]}).select(wait(ps.col("x"))).collect()
    finally:
        ps.detach_subscriber(live)
    assert [gpu["busy_now"] for gpu in live.snapshot()["gpus"]] == [0.8, 0.4]
    assert df.to_pydict() == {"x": ["sampled"]}
    assert str(df.stats()).splitlines()[-2:] == [
        "GPU 0: 80% busy, at most 1.0 GB of 2.1 GB, 350 W",
        "GPU 1: 40% busy, at most 524.3 MB of 2.1 GB",
    ]
    assert "--id=0,1" in (tmp_path / "arguments").read_text()


def test_a_query_without_gpus_reports_none() -> None:
    assert "GPU" not in str(ps.from_pydict({"x": [1]}).collect().stats())
