"""Small local files of a task are read together; all others one by one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock.storage.small_files import MAX_NBYTES, read_small_files


def read(paths: Sequence[str], max_nbytes: int = MAX_NBYTES) -> pa.Array | None:
    return asyncio.run(read_small_files(paths, max_nbytes))


def drop_from_memory(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"{number}.bin" for number in range(3)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * (number + 1))
    return [str(path) for path in paths]


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_files_are_one_column(files: list[str], is_in_memory: bool) -> None:
    if not is_in_memory:
        drop_from_memory(files[1])
    found = read(files)
    assert found is not None
    assert found.to_pylist() == [b"\0", b"\1\1", b"\2\2\2"]


def test_no_files_are_an_empty_column() -> None:
    found = read([])
    assert found is not None
    assert found.to_pylist() == []


@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "pipe", "large"])
def test_a_file_that_must_be_read_alone_is_left_to_the_caller(files: list[str], tmp_path: Path, kind: str) -> None:
    other = tmp_path / "other"
    match kind:
        case "folder":
            other.mkdir()
        case "empty":
            other.touch()
        case "pipe":
            os.mkfifo(other)
        case "large":
            other.write_bytes(b"x" * 5)
    assert read([*files, str(other)], max_nbytes=4) is None
    assert read(files, max_nbytes=4) is not None


def test_no_file_stays_open(files: list[str]) -> None:
    open_before = os.listdir("/proc/self/fd")
    read(files)
    read([*files, "/no/such/file"])
    assert os.listdir("/proc/self/fd") == open_before


def test_a_task_with_a_missing_file_keeps_the_other_files(files: list[str]) -> None:
    df = ps.from_pydict({"path": [*files, "/no/such/file", None]})
    df = df.with_column("data", ps.col("path").download(on_error="null")).collect()
    assert df.to_pydict()["data"] == [b"\0", b"\1\1", b"\2\2\2", None, None]
    (failed,) = df.errors().to_pydict()["input"]
    assert "/no/such/file" in failed


def test_the_rules_of_access_hold(files: list[str]) -> None:
    column = ps.col("path").download(allow="public")
    with pytest.raises(ps.errors.ForbiddenUrlError, match="local file"):
        ps.from_pydict({"path": files}).select(column).collect()
