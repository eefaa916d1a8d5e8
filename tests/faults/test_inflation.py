"""A query whose rows grow fiftyfold keeps to its memory: all its processes, as the system sees them, from outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.faults.inflating import INFLATION, ROW_NBYTES, expected_totals
from tests.faults.process_memory import PeakMemory

BUDGET = 4 * 10**8
NUM_ROWS = 2 * BUDGET // (ROW_NBYTES * INFLATION) + 2  # more than could be held
INTERPRETER = 150 * 10**6  # with the libraries that a query loads
WORKER = 10**8  # the interpreter of a worker process, with what it has imported
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "pipeline",
    [
        pytest.param("threads", id="batch functions"),
        pytest.param("rows", id="row functions"),
        pytest.param("processes", id="worker processes"),
        pytest.param("expressions", id="explode"),
        pytest.param("reader", id="a slow reader"),
        pytest.param("slow_first", id="outputs held back for order"),
    ],
)
def test_rows_that_grow_fiftyfold_stay_within_the_budget(pipeline: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.inflating", pipeline, str(NUM_ROWS), str(BUDGET), str(tmp_path)]
    query = subprocess.Popen(command, cwd=ROOT)
    try:
        with PeakMemory(query.pid, every_s=0.03) as peak:  # to look costs milliseconds a gigabyte
            assert query.wait() == 0
    finally:
        query.kill()
        query.wait()
    written = pq.read_table(tmp_path).to_pydict()
    assert dict(zip(written["id"], written["total"], strict=True)) == expected_totals(NUM_ROWS)
    num_workers = 4 if pipeline == "processes" else 0
    assert peak.num_processes == 1 + num_workers
    # What allocators keep back is not in the budget, nor is the interpreter. On a busy machine they keep more.
    most = BUDGET * 4 // 3 + INTERPRETER
    assert max(peak.total, peak.rss, peak.root_rss) <= most + num_workers * WORKER, f"{peak}"
    assert peak.total > BUDGET / 8, "the sampler looked elsewhere"
