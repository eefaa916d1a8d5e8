"""Jobs whose workers are actors: the driver is killed, and another one goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

import penstock as ps
from penstock import DataType, col
from penstock.io.commit.target import LocalPlace
from penstock.jobs.journal import Journal
from penstock.jobs.state import JobState

pytestmark = pytest.mark.ray

ROOT = Path(__file__).resolve().parents[3]
NUM_ROWS = 2000
DRIVER = """
import sys
import penstock as ps
from tests.runners.ray.test_jobs import evens

address, source, out, calls = sys.argv[1:]
ps.set_runner_ray(address)
ps.set_config(checkpoint_interval=0.05, progress=False)
evens(source, calls).write_parquet(out, resume=True)
"""


@pytest.fixture
def on_ray(ray_cluster: None) -> Iterator[None]:
    ps.set_runner_ray()
    with ps.config(checkpoint_interval=0.05, progress=False):
        yield
    ps.set_runner_local()


def evens(source: str, calls: str) -> ps.DataFrame:
    """Return the even numbers and ten times each; a file ``<calls>.pause`` makes each call take a while."""

    @ps.func(return_dtype=DataType.int64(), cache=True)
    def ten_times(x: int) -> int:
        descriptor = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(descriptor, f"{x}\n".encode())
        os.close(descriptor)
        if os.path.exists(f"{calls}.pause"):
            time.sleep(0.01)
        return x * 10

    return ps.read_parquet(source).where(col("x") % 2 == 0).with_column("y", ten_times(col("x")))


def num_safe(out: Path) -> int:
    return JobState.of(Journal(LocalPlace(str(out))).read()).num_rows


def test_a_job_goes_on_after_its_driver_was_killed(on_ray: None, tmp_path: Path) -> None:
    source, out, calls = tmp_path / "in", tmp_path / "out", tmp_path / "calls"
    source.mkdir()
    for part in range(4):
        x = list(range(part * 500, part * 500 + 500))
        pq.write_table(pa.table({"x": x}), source / f"{part}.parquet", row_group_size=100)
    pause = Path(f"{calls}.pause")
    pause.touch()
    address = ray.get_runtime_context().gcs_address
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, address, str(source), str(out), str(calls)],
        cwd=tmp_path,  # not this process's folder
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "another machine")},
        stderr=subprocess.PIPE,
        text=True,
    ) as driver:
        while num_safe(out) < 200:
            assert driver.poll() is None, driver.communicate()
            time.sleep(0.01)
        driver.send_signal(signal.SIGKILL)
    pause.unlink()
    assert not list(out.glob("*.parquet"))
    written = num_safe(out)
    evens(str(source), str(calls)).write_parquet(str(out), resume=True)
    rows = ps.read_parquet(str(out)).to_pydict()
    assert sorted(rows["x"]) == list(range(0, NUM_ROWS, 2))
    assert all(y == 10 * x for x, y in zip(rows["x"], rows["y"], strict=True))
    made = Counter(calls.read_text().split())
    assert set(made) == {str(x) for x in range(0, NUM_ROWS, 2)}
    # The workers keep what was asked within a tenth of a second, each 10 calls; a busy disk takes longer.
    assert sum(made.values()) - len(made) < 100
    assert written >= 200
