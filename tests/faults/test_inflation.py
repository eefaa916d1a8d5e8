"""A query whose rows grow fiftyfold keeps to its memory: all its processes, as the system sees them, from outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.faults.inflating import INFLATION, ROW_NBYTES, expected_totals
from tests.faults.process_memory import PeakMemory

BUDGET = 6 * 10**8
INTERPRETER = 150 * 10**6  # with the libraries that a query loads
WORKER = 10**8  # the interpreter of a worker process, with what it has imported
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("pipeline", "num_rows", "budget"),
    [
        pytest.param("threads", 120, 2 * BUDGET, id="3.6 GB through batch functions"),
        pytest.param("rows", 42, BUDGET, id="row functions"),
        pytest.param("processes", 42, BUDGET, id="worker processes"),
        pytest.param("expressions", 42, BUDGET, id="explode"),
        pytest.param("reader", 42, BUDGET, id="a slow reader"),
        pytest.param("slow_first", 42, BUDGET, id="outputs held back for order"),
    ],
)
def test_rows_that_grow_fiftyfold_stay_within_the_budget(
    pipeline: str, num_rows: int, budget: int, tmp_path: Path
) -> None:
    assert num_rows * ROW_NBYTES * INFLATION > 2 * budget, "more than could be held"
    command = [sys.executable, "-m", "tests.faults.inflating", pipeline, str(num_rows), str(budget), str(tmp_path)]
    query = subprocess.Popen(command, cwd=ROOT)
    try:
        with PeakMemory(query.pid, every_s=0.03) as peak:  # to look costs milliseconds a gigabyte
            assert query.wait() == 0
    finally:
        query.kill()
        query.wait()
    written = pq.read_table(tmp_path).to_pydict()
    assert dict(zip(written["id"], written["total"], strict=True)) == expected_totals(num_rows)
    num_workers = 4 if pipeline == "processes" else 0
    assert peak.num_processes == 1 + num_workers
    # What allocators keep back is not in the budget, nor is the interpreter. On a busy machine they keep more.
    most = budget * 4 // 3 + INTERPRETER
    assert max(peak.total, peak.rss, peak.root_rss) <= most + num_workers * WORKER, f"{peak}"
    assert peak.total > budget / 8, "the sampler looked elsewhere"
