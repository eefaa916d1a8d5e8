"""Helpers of the tests of jobs: functions that count their calls and fail on demand, and the content of a folder."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock.io.commit.target import LocalPlace
from penstock.jobs.journal import Journal
from penstock.jobs.state import JobState


class Calls:
    """Counts the calls of a function, in whichever process they are: a line each, appended to a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def note(self, value: object) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(descriptor, f"{value}\n".encode())
        os.close(descriptor)

    def take(self) -> Counter[str]:
        """Return how often it was called with what since the last time."""
        if not os.path.exists(self.path):
            return Counter()
        with open(self.path) as file:
            found = Counter(file.read().split())
        os.unlink(self.path)
        return found


def breaking(
    calls: Calls, broken: Path, at: int | None = None, rows: tuple[Path, int] | None = None
) -> Callable[[int], int]:
    """Return a function of a number that notes its calls, and fails while the file ``broken`` is there.

    With ``rows`` it does not fail before that many rows of the job in a folder are safe.
    """
    path = str(broken)

    def ten_times(a: int) -> int:
        calls.note(a)
        if os.path.exists(path) and (at is None or a == at):
            if rows is not None:
                wait_until(lambda: num_safe(rows[0]) >= rows[1])
            raise ValueError(f"no luck with {a}")
        return a * 10

    return ten_times


def num_safe(out: Path) -> int:
    """Return how many rows of a job will not be made again."""
    return JobState.of(Journal(LocalPlace(str(out))).read()).num_rows


def wait_until(is_so: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Poll what another thread or process does."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


def numbers(count: int) -> ps.DataFrame:
    return ps.from_pydict({"a": list(range(count))})


def write_numbers(folder: Path, *files: Sequence[int]) -> Path:
    """Make Parquet files ``0.parquet`` and so on, with a column ``a``."""
    folder.mkdir(exist_ok=True)
    for number, values in enumerate(files):
        pq.write_table(pa.table({"a": list(values)}), folder / f"{number}.parquet")
    return folder


def column(out: Path, name: str = "a", read: Callable[[str], ps.DataFrame] = ps.read_parquet) -> list[Any]:
    """Return a column of what a folder holds, sorted."""
    return sorted(read(str(out)).to_pydict()[name])


def errors(out: Path) -> list[dict[str, Any]]:
    found = sorted((out / "_errors").glob("*.parquet"))
    return [row for path in found for row in pq.read_table(path).to_pylist()]


def staged(out: Path, pattern: str = "*") -> list[Path]:
    return sorted(path for path in (out / "_penstock_job" / "data").rglob(pattern) if path.is_file())
