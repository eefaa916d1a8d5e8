"""A query that makes many rows of few keeps to its memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.multiplying import NUM_ROWS, PIPELINES
from tests.faults.process_memory import PeakMemory

BUDGET = 64 * 10**6
MOST = BUDGET * 5 // 4
INTERPRETER = 10**8  # with its libraries; not in the budget, which is small here
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_many_rows_of_few_stay_within_the_budget(pipeline: str) -> None:
    command = [sys.executable, "-m", "tests.faults.multiplying", pipeline, str(BUDGET)]
    query = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        with PeakMemory(query.pid, every_s=0.03) as peak:
            printed, _ = query.communicate()
    finally:
        query.kill()
        query.wait()
    assert printed == f"{NUM_ROWS}\n"
    assert peak.total <= MOST + INTERPRETER, f"{peak}"
