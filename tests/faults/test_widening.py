"""Rows that become large, and large answers, keep to the memory limit: the peak of a process, as the system sees it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import ModelServer
from tests.faults.widening import ANSWER_NBYTES, NUM_ANSWERS, NUM_LINES, NUM_TEXTS

BUDGET = 3 * 10**8
ROOT = Path(__file__).parents[2]
NUM_ROWS = {"repeat": NUM_TEXTS, "csv": NUM_LINES}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(answer=lambda request: "a" * ANSWER_NBYTES) as server:
        yield server


def peak(name: str, folder: Path) -> int:
    """Run a query in a process of its own and return the bytes that it adds to the peak of the process."""
    command = [sys.executable, "-m", "tests.faults.widening", name, str(BUDGET), str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, after, num_rows = map(int, done.stdout.split())
    assert num_rows == NUM_ROWS.get(name, NUM_ANSWERS)
    return after - before


@pytest.mark.parametrize("name", ["repeat", "csv", "rows", "async_rows"])
def test_rows_that_widen_stay_within_the_budget(name: str, tmp_path: Path) -> None:
    assert peak(name, tmp_path) <= BUDGET * 4 // 3  # allocators keep memory back


def test_large_answers_stay_within_the_budget(server: ModelServer, tmp_path: Path) -> None:
    (tmp_path / "url").write_text(server.openai_url)
    assert peak("prompts", tmp_path) <= BUDGET * 4 // 3
    assert server.num_requests == NUM_ANSWERS, "an answer that waited for room was lost"
