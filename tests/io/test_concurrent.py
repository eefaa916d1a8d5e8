"""Readers and writers of one folder at the same time, in threads and in processes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import OutputExistsError, PathNotFoundError, PenstockError, ReadError, WriteError
from penstock.io import consistent_listing
from tests.forked import ForkedProcess
from tests.io.helpers import visible_files
from tests.storage.servers import Bucket

NUM_ROWS = 12


def write_version(root: str, version: int, mode: Any = "overwrite", **options: Any) -> None:
    frame = ps.from_pydict({"v": [version] * NUM_ROWS, "k": [row % 3 for row in range(NUM_ROWS)]})
    frame.write_parquet(root, mode=mode, rows_per_file=2, **options)


def check_reads_while_overwritten(root: str, num_versions: int, **options: Any) -> Counter[str]:
    """Overwrite a folder in a loop, read it meanwhile, and return how the reads ended."""
    partition_cols = options.pop("partition_cols", ())
    write_version(root, 0, partition_cols=partition_cols, **options)
    is_done = threading.Event()

    def read() -> Counter[str]:
        found: Counter[str] = Counter()
        while not is_done.is_set() or not found["whole"]:
            try:
                versions = ps.read_parquet(root, **options).to_pydict()["v"]
            except PathNotFoundError:  # names the file that was replaced since the folder was listed
                found["refused"] += 1
            else:
                assert len(versions) == NUM_ROWS
                assert len(set(versions)) == 1
                found["whole"] += 1
        return found

    with ThreadPoolExecutor(2) as threads:
        readers = [threads.submit(read) for _ in range(2)]
        try:
            for version in range(1, num_versions):
                write_version(root, version, partition_cols=partition_cols, **options)
        finally:
            is_done.set()
        return readers[0].result() + readers[1].result()


@pytest.mark.parametrize("partition_cols", [(), ("k",)])
def test_a_reader_sees_one_version(tmp_path: Path, partition_cols: tuple[str, ...]) -> None:
    found = check_reads_while_overwritten(str(tmp_path / "out"), 6, partition_cols=partition_cols)
    assert found["whole"]


def test_a_reader_of_a_store_sees_one_version(bucket: Bucket) -> None:
    assert check_reads_while_overwritten(f"{bucket.url}/out", 3, storage_options=bucket.options)["whole"]


def test_a_reader_waits_for_a_commit_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    write_version(str(out), 0)
    manifest = out / "_penstock_staging" / "other" / "commit.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    monkeypatch.setattr(consistent_listing, "MAX_WAIT_S", 0.05)
    with pytest.raises(ReadError, match=r"a commit has been in progress.*the next write there completes the commit"):
        ps.read_parquet(str(out))


def created(root: str, version: int, at: float) -> None:
    """Write at a time, and leave a file that says how it ended."""
    while time.time() < at:
        pass
    try:
        write_version(root, version, "create")
    except (OutputExistsError, WriteError) as exc:
        Path(f"{root}.{version}.refused").write_text(str(exc))


def check_one_version(out: Path, num_writers: int) -> None:
    refused = list(out.parent.glob(f"{out.name}.*.refused"))
    if len(refused) == num_writers:  # all saw each other
        assert not visible_files(out)
    else:
        assert len(refused) == num_writers - 1
        assert len(set(ps.read_parquet(str(out)).to_pydict()["v"])) == 1
        assert ps.read_parquet(str(out)).count_rows() == NUM_ROWS
    assert all("already holds data" in each.read_text() or "in progress" in each.read_text() for each in refused)


def test_one_of_two_simultaneous_writes_creates(tmp_path: Path) -> None:
    for number in range(8):
        out = tmp_path / str(number)
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda version, out=out: created(str(out), version, 0.0), range(2)))
        check_one_version(out, 2)


def test_one_of_two_processes_creates(tmp_path: Path) -> None:
    out, at = tmp_path / "out", time.time() + 0.3
    processes = [ForkedProcess(created, str(out), version, at) for version in range(2)]
    assert [process.ended()[0] for process in processes] == [0, 0]
    check_one_version(out, 2)


@pytest.mark.one_machine
def test_a_job_does_not_begin_where_a_write_is_in_progress(tmp_path: Path) -> None:
    out, is_open = str(tmp_path / "out"), threading.Event()
    is_written = threading.Event()

    def slow(batch: dict[str, Any]) -> dict[str, Any]:
        is_open.set()
        is_written.wait(60)
        return batch

    with ThreadPoolExecutor(1) as threads:
        write = threads.submit(ps.range(3).map_batches(slow).write_parquet, out)
        is_open.wait(60)
        with pytest.raises(PenstockError, match=r"Another write to .* is in progress"):
            ps.range(5).write_parquet(out, resume=True)
        is_written.set()
        write.result()
    assert ps.read_parquet(out).count_rows() == 3
