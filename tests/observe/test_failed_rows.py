"""Many rows that fail go to a file: the driver's memory holds few of them, and no file is left behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
import penstock.observe.failed_rows as errors_module
from penstock.events.events import QueryStarted, RowError, RowsFailed
from penstock.observe.failed_rows import SCHEMA, ErrorLog


def error(number: int) -> RowError:
    return RowError("parse", f'{{"a": {number}}}', "ValueError", f"{number} is bad", "t" * 100)


def fail(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] % 2 == 0:
        raise ValueError(f"{row['id']} is even")
    return row


@pytest.fixture
def temp_dir(tmp_path: Path) -> Any:
    """A folder for temporary files, of which none may be left."""
    folder = tmp_path / "temp"
    folder.mkdir()
    with ps.config(temp_dir=folder):
        yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def spilling(monkeypatch: pytest.MonkeyPatch, temp_dir: Path) -> Path:
    """Every few errors are spilled."""
    monkeypatch.setattr(ErrorLog.__init__, "__defaults__", (10_000,))
    return temp_dir


def open_files(folder: Path) -> list[str]:
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if str(folder) in line]


def test_few_are_held_and_many_are_spilled(temp_dir: Path) -> None:
    log = ErrorLog(max_held_chars=1000)
    log.on_event(RowsFailed(0, (error(0), error(1))))
    assert open_files(temp_dir) == []
    log.on_event(RowsFailed(0, tuple(error(number) for number in range(2, 100))))
    log.on_event(RowsFailed(0, (error(100),)))
    assert len(open_files(temp_dir)) > 10
    assert log.num_rows == 101
    assert len(log.batches()) > 10
    messages = [message for batch in log.batches() for message in batch.column("message").to_pylist()]
    assert messages == [f"{number} is bad" for number in range(101)]
    log.on_event(QueryStarted((), 0.0))
    assert (log.num_rows, log.batches()) == (0, [])
    assert open_files(temp_dir) == []


def test_a_frame_of_errors_reads_them_when_they_are_wanted(spilling: Path) -> None:
    df = ps.range(2000).map(fail, on_error="ignore").collect()
    errors = df.errors()
    assert len(open_files(spilling)) > 1
    assert errors.count_rows() == 1000
    assert errors.columns == SCHEMA.names
    assert sorted(errors.select("message").to_pydict()["message"])[:2] == ["0 is even", "10 is even"]
    assert len(errors.limit(3).to_pylist()) == 3
    assert errors.where(ps.col("message") == "1998 is even").select("error_type").to_pylist() == [
        {"error_type": "ValueError"}
    ]
    assert errors.to_arrow().equals(errors.to_arrow())
    del df
    gc.collect()
    assert errors.count_rows() == 1000  # they stay as long as someone has them
    del errors
    gc.collect()
    assert open_files(spilling) == []


def test_a_new_run_lets_go_of_the_old_errors(spilling: Path) -> None:
    df = ps.range(2000).map(fail, on_error="ignore")
    for _ in range(3):
        df.to_arrow()
        gc.collect()
        assert len(open_files(spilling)) > 1
        assert df.errors().count_rows() == 1000
    del df
    gc.collect()
    assert open_files(spilling) == []


def test_a_write_streams_them_beside_the_rows(spilling: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    written = ps.range(2000).map(fail, on_error="ignore").write_parquet(out)
    num_files = len(open_files(spilling))
    left = ps.read_parquet(out + "/_errors")
    assert left.to_pylist() == written.errors().to_pylist()
    assert num_files == len(open_files(spilling)) > 1
    assert left.count_rows() == 1000
    assert ps.read_parquet(out).count_rows() == 1000
    del written
    gc.collect()
    assert open_files(spilling) == []


def test_a_query_that_fails_keeps_no_file_longer_than_its_frame(spilling: Path, tmp_path: Path) -> None:
    df = ps.range(2000).map(fail, on_error="ignore", max_errors=900)
    with pytest.raises(ps.errors.TooManyErrorsError):
        df.write_parquet(str(tmp_path / "out"))
    assert df.errors().count_rows() > 900
    del df
    gc.collect()
    assert open_files(spilling) == []


def test_a_folder_that_takes_no_file_is_an_error_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ErrorLog.__init__, "__defaults__", (10_000,))
    df = ps.range(2000).map(fail, on_error="ignore")
    with ps.config(temp_dir=tmp_path / "missing"), pytest.raises(FileNotFoundError) as caught:
        df.collect()
    assert "Set temp_dir to a folder with more room" in caught.value.__notes__[0]


def test_a_process_that_is_killed_leaves_no_file(temp_dir: Path) -> None:
    code = """
import os, signal
import penstock as ps
from penstock.observe.failed_rows import ErrorLog
ErrorLog.__init__.__defaults__ = (10_000,)
def fail(row):
    raise ValueError(row)
df = ps.range(2000).map(fail, on_error="ignore", max_errors=None)
df.count_rows()
assert "/temp/" in open("/proc/self/maps").read()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"PENSTOCK_TEMP_DIR": str(temp_dir)})
    assert done.returncode == -9


def test_memory_stays_small_however_many_fail() -> None:
    import tracemalloc

    log = ErrorLog(max_held_chars=1 << 20)
    tracemalloc.start()
    try:
        for start in range(0, 50_000, 500):
            trace = "Traceback (most recent call last):\n" + "  File ...\n" * 40
            log.on_event(
                RowsFailed(
                    0,
                    tuple(
                        RowError("f", str(n), "ValueError", "bad", trace + str(n)) for n in range(start, start + 500)
                    ),
                )
            )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert log.num_rows == 50_000
    assert peak < 8 << 20
    assert errors_module.MAX_HELD_CHARS <= 64 << 20
