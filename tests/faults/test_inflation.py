"""A query whose rows grow fiftyfold keeps to its memory: all its processes, as the system sees them, from outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.faults.inflating import INFLATION, ROW_NBYTES, expected_totals
from tests.faults.process_memory import PeakMemory

BUDGET = 2 * 10**9
MOST = BUDGET * 5 // 4  # an interpreter, its libraries and what allocators keep back are not in the budget
WORKER = 10**8  # nor is the interpreter of a worker process, with what it has imported
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("pipeline", "num_rows"),
    [
        pytest.param("threads", 240, id="12 GB through batch functions"),
        pytest.param("rows", 84, id="row functions"),
        pytest.param("processes", 84, id="worker processes"),
        pytest.param("expressions", 84, id="explode"),
        pytest.param("reader", 84, id="a slow reader"),
        pytest.param("slow_first", 84, id="outputs held back for order"),
    ],
)
def test_rows_that_grow_fiftyfold_stay_within_the_budget(pipeline: str, num_rows: int, tmp_path: Path) -> None:
    assert num_rows * ROW_NBYTES * INFLATION > 2 * BUDGET, "more than could be held"
    command = [sys.executable, "-m", "tests.faults.inflating", pipeline, str(num_rows), str(BUDGET), str(tmp_path)]
    query = subprocess.Popen(command, cwd=ROOT)
    try:
        with PeakMemory(query.pid) as peak:
            assert query.wait() == 0
    finally:
        query.kill()
        query.wait()
    written = pq.read_table(tmp_path).to_pydict()
    assert dict(zip(written["id"], written["total"], strict=True)) == expected_totals(num_rows)
    num_workers = 4 if pipeline == "processes" else 0
    assert peak.num_processes == 1 + num_workers
    assert max(peak.total, peak.rss, peak.root_rss) <= MOST + num_workers * WORKER, f"{peak}"
    assert peak.total > BUDGET / 8, "the sampler looked elsewhere"
