"""A write that is killed: what readers see then, and what the next write does about it.

Each test runs a writer in its own process, which kills itself at a chosen moment with SIGKILL.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import OutputExistsError, ReadError
from penstock.io import consistent_listing
from penstock.io.consistent_listing import STAGING_FOLDER as FOLDER
from penstock.io.formats.parquet import ParquetEncoding
from penstock.io.writer import FileSink
from tests.forked import exit_code
from tests.io.helpers import parquet_rows, visible_files, write_all
from tests.io.killed_writer import write

OLD, NEW = list(range(10)), list(range(100, 110))


def run_writer(root: Path, mode: str, calls: int, moment: str) -> int:
    return exit_code(write, str(root), mode, calls, moment, timeout_s=30)


def sink_to(root: Path, mode: str = "append") -> FileSink:
    return FileSink(str(root), ParquetEncoding(), mode=mode)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A folder that holds the old data, in several files."""
    write_all(FileSink(str(tmp_path), ParquetEncoding(), rows_per_file=3), pa.record_batch({"a": OLD}))
    return tmp_path


def values(root: Path) -> list[int]:
    return sorted(row["a"] for row in parquet_rows(root))


def values_in_files(root: Path) -> list[int]:
    """Return the values of all visible files, also of more than one version."""
    return [row["a"] for name in visible_files(root) for row in parquet_rows(root / name)]


def recover(root: Path) -> None:
    """Start the next write, and give it up."""
    sink = sink_to(root)
    sink.start()
    sink.abort()
    assert not (root / FOLDER).exists()


@pytest.mark.parametrize("calls", [0, 1, 5])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_killed_while_writing(output: Path, mode: str, calls: int) -> None:
    before = visible_files(output)
    assert run_writer(output, mode, calls, "write") == -signal.SIGKILL
    assert visible_files(output) == before
    assert values(output) == OLD
    recover(output)
    assert visible_files(output) == before


def test_killed_before_the_manifest_exists(output: Path) -> None:
    assert run_writer(output, "overwrite", 0, "rename") == -signal.SIGKILL
    assert values(output) == OLD
    recover(output)
    assert values(output) == OLD


@pytest.mark.parametrize("calls", [1, 2, 3, 5])
def test_killed_between_the_renames_of_an_overwrite(output: Path, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader knows at once that the writer is dead."""
    assert run_writer(output, "overwrite", calls, "rename") == -signal.SIGKILL
    assert set(OLD) <= set(values_in_files(output)), "the old data stays until the new is complete"
    monkeypatch.setattr(consistent_listing, "MAX_WAIT_S", 10_000.0)
    with pytest.raises(ReadError, match="the next write there completes the commit"):
        values(output)
    recover(output)
    assert values(output) == NEW


@pytest.mark.parametrize("calls", [0, 1, 3, 4])
def test_killed_between_the_deletions_of_an_overwrite(output: Path, calls: int) -> None:
    assert run_writer(output, "overwrite", calls, "unlink") == -signal.SIGKILL
    assert set(NEW) <= set(values_in_files(output))
    recover(output)
    assert values(output) == NEW


def test_killed_between_the_renames_of_an_append(output: Path) -> None:
    assert run_writer(output, "append", 3, "rename") == -signal.SIGKILL
    recover(output)
    assert values(output) == OLD + NEW


def test_the_next_write_finishes_the_one_before_it(output: Path) -> None:
    assert run_writer(output, "overwrite", 2, "rename") == -signal.SIGKILL
    write_all(sink_to(output), pa.record_batch({"a": [1000]}))
    assert values(output) == [*NEW, 1000]


def test_a_committed_write_counts_as_data_for_the_next_create(tmp_path: Path) -> None:
    root = tmp_path / "out"
    assert run_writer(root, "create", 1, "rename") == -signal.SIGKILL
    assert visible_files(root) == []
    with pytest.raises(OutputExistsError):
        sink_to(root, "create").start()
    assert values(root) == NEW


def test_a_killed_recovery_is_repeated(output: Path) -> None:
    assert run_writer(output, "overwrite", 2, "rename") == -signal.SIGKILL
    assert run_writer(output, "append", 1, "write") == -signal.SIGKILL  # recovers first, then dies while writing
    recover(output)
    assert values(output) == NEW


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    root = tmp_path / "out"
    assert run_writer(root, "create", -1, "interrupt") == 0
    assert list(root.iterdir()) == []


def test_a_create_that_was_killed_can_be_done_again(tmp_path: Path) -> None:
    root = tmp_path / "out"
    assert run_writer(root, "create", 3, "write") == -signal.SIGKILL
    write_all(sink_to(root, "create"), pa.record_batch({"a": [1]}))
    assert values(root) == [1]
    assert not (root / FOLDER).exists()


def test_the_staging_of_a_living_run_is_left_alone(output: Path) -> None:
    living = sink_to(output)
    living.start()
    living.output.files.path_for("x")
    assert run_writer(output, "append", 1, "write") == -signal.SIGKILL
    other = sink_to(output)
    other.start()
    other.abort()
    assert (output / FOLDER / living.run_id).is_dir()
    assert [path.name for path in (output / FOLDER).iterdir() if path.is_dir()] == [living.run_id]
    living.abort()


def test_the_staging_of_another_machine_is_left_alone_unless_it_was_committed(output: Path) -> None:
    before = visible_files(output)
    abroad = output / FOLDER / "20240101T000000-abcdef01"
    (abroad / "data").mkdir(parents=True)
    (output / FOLDER / f"{abroad.name}.elsewhere.lock").touch()
    (abroad / "data" / "x.parquet").write_bytes(b"")
    sink = sink_to(output)
    sink.start()
    sink.abort()
    assert (abroad / "data" / "x.parquet").exists()
    (abroad / "commit.json").write_text('{"moves": ["x.parquet"], "deletes": []}')
    recover(output)
    assert visible_files(output) == sorted([*before, "x.parquet"])


def test_no_descriptor_is_left_open(output: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        write_all(sink_to(output), pa.record_batch({"a": [1]}))
        recover(output)
    assert len(os.listdir("/proc/self/fd")) <= before
