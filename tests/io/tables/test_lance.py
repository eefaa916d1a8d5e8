"""Lance datasets: written by workers, committed once, read by fragments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import InvalidArgumentError, OutputExistsError, PathNotFoundError, ReadError, UdfError
from penstock.io.tables.lance import lance_source
from penstock.protocols import ReadRequest
from penstock.types import EmbeddingType
from tests.io.helpers import read_rows

ROWS = {"id": [1, 2, 3, None], "x": [1.5, float("nan"), None, 2.5], "word": ["a", "b", None, "d"]}


def test_rows_come_back(tmp_path: Path) -> None:
    written = ps.from_pydict(ROWS).exclude("x").write_lance(tmp_path / "t.lance")
    assert written.to_pydict() == {
        "num_fragments": [1],
        "num_deleted_rows": [0],
        "num_small_files": [1],
        "version": [1],
    }
    found = ps.read_lance(tmp_path / "t.lance")
    assert found.to_pydict() == {"id": ROWS["id"], "word": ROWS["word"]}
    assert found.count_rows() == 4
    assert found.limit(2).to_pydict()["id"] == [1, 2]


def test_filters_give_the_same_rows(tmp_path: Path) -> None:
    df = ps.from_pydict(ROWS)
    df.write_lance(tmp_path / "t.lance", max_rows_per_file=3)
    found = ps.read_lance(tmp_path / "t.lance")
    col = ps.col
    for predicate in (
        col("id") > 1,
        col("x") > 1.0,  # NaN is not larger
        (col("word") == "b") | col("word").is_null(),
        ~(col("word") == "b"),
        col("word").is_in(["a", "d"]) & (col("id") < 3),
    ):
        assert found.where(predicate).select("word").to_pydict() == df.where(predicate).select("word").to_pydict()


def test_modes_of_writing(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    with pytest.raises(PathNotFoundError, match="There is no Lance dataset"):
        ps.from_pydict({"a": [1]}).write_lance(path, mode="append")
    ps.from_pydict({"a": [1]}).write_lance(path)
    first = ps.read_lance(path)
    with pytest.raises(OutputExistsError, match="use mode='overwrite'"):
        ps.from_pydict({"a": [2]}).write_lance(path)
    ps.from_pydict({"a": [2]}).write_lance(path, mode="append")
    assert ps.read_lance(path).to_pydict() == {"a": [1, 2]}
    ps.from_pydict({"b": ["x"]}).write_lance(path, mode="overwrite")
    assert ps.read_lance(path).to_pydict() == {"b": ["x"]}
    assert first.to_pydict() == {"a": [1]}  # the version it was made with
    assert ps.read_lance(path, version=2).to_pydict() == {"a": [1, 2]}
    with pytest.raises(InvalidArgumentError, match="has the columns b; the rows to append have a"):
        ps.from_pydict({"a": [1]}).write_lance(path, mode="append")


def test_an_append_takes_the_types_of_the_dataset(tmp_path: Path) -> None:
    ps.from_arrow(pa.table({"a": pa.array([1], pa.int32())})).write_lance(tmp_path / "t.lance")
    ps.from_pydict({"a": [2]}).write_lance(tmp_path / "t.lance", mode="append")
    found = ps.read_lance(tmp_path / "t.lance").to_arrow()
    assert found.equals(pa.table({"a": pa.array([1, 2], pa.int32())}))


def test_many_writers_make_one_version(tmp_path: Path) -> None:
    written = ps.range(500_000).write_lance(tmp_path / "t.lance").to_pydict()
    assert written["version"] == [1]
    found = ps.read_lance(tmp_path / "t.lance")
    assert sorted(found.to_pydict()["id"]) == list(range(500_000))


def test_a_write_that_fails_leaves_the_dataset_as_it_was(tmp_path: Path) -> None:
    @ps.func
    def fails_late(value: int) -> int:
        if value == 4999:
            raise ValueError("no")
        return value

    bad = ps.range(5000).select(fails_late(ps.col("id")).alias("a"))
    with pytest.raises(UdfError, match="no"):
        bad.write_lance(tmp_path / "t.lance")
    with pytest.raises(PathNotFoundError):
        ps.read_lance(tmp_path / "t.lance")
    ps.from_pydict({"a": [1]}).write_lance(tmp_path / "t.lance")
    for mode in ("append", "overwrite"):
        with pytest.raises(UdfError, match="no"):
            bad.write_lance(tmp_path / "t.lance", mode=mode)  # type: ignore[arg-type]
        assert ps.read_lance(tmp_path / "t.lance").to_pydict() == {"a": [1]}


def test_an_empty_result_has_columns(tmp_path: Path) -> None:
    ps.from_pydict({"a": [1]}).where(ps.col("a") > 1).write_lance(tmp_path / "t.lance")
    assert ps.read_lance(tmp_path / "t.lance").to_pydict() == {"a": []}


def test_embeddings_keep_their_type(tmp_path: Path) -> None:
    vectors = pa.ExtensionArray.from_storage(
        EmbeddingType(pa.float32(), 2), pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    )
    ps.from_arrow(pa.table({"v": vectors})).write_lance(tmp_path / "t.lance")
    found = ps.read_lance(tmp_path / "t.lance")
    assert np.array_equal(found.take_batch(2)["v"], [[1.0, 2.0], [3.0, 4.0]])


def test_fragments_are_tasks(tmp_path: Path) -> None:
    for number in range(3):
        ps.from_pydict({"a": [number]}).write_lance(tmp_path / "t", mode="append" if number else "create")  # type: ignore[arg-type]
    source = lance_source(tmp_path / "t")
    assert [task.num_rows for task in source.read_tasks(ReadRequest())] == [1, 1, 1]
    assert [task.num_rows for task in source.read_tasks(ReadRequest(limit=2))] == [1, 1]
    assert read_rows(source) == [{"a": number} for number in range(3)]


def test_wide_rows_come_in_small_batches(tmp_path: Path) -> None:
    rows: dict[str, Any] = {"a": [bytes(2**20) for _ in range(40)]}
    ps.from_pydict(rows).write_lance(tmp_path / "t")
    tasks = lance_source(tmp_path / "t").read_tasks(ReadRequest())
    assert max(batch.nbytes for task in tasks for batch in task.read()) < 20 * 2**20


def test_mistakes_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match="There is no Lance dataset at"):
        ps.read_lance(tmp_path / "missing")
    with pytest.raises(InvalidArgumentError, match="mode='merge' is not known"):
        ps.range(1).write_lance(tmp_path / "t", mode="merge")  # type: ignore[arg-type]
    ps.range(1).write_lance(tmp_path / "t")
    for version in (99, "no-such-tag"):
        with pytest.raises(ReadError, match=rf"dataset '.*t' has no version {version!r}; its newest is 1\.") as caught:
            ps.read_lance(tmp_path / "t", version=version)
        assert not isinstance(caught.value, PathNotFoundError)
        with pytest.raises(PathNotFoundError, match="There is no Lance dataset at"):
            ps.read_lance(tmp_path / "missing", version=version)


def test_options_of_the_store_are_not_shown(tmp_path: Path) -> None:
    ps.range(1).write_lance(tmp_path / "t")
    source = lance_source(tmp_path / "t", storage_options={"aws_secret_access_key": "s3cret"})
    [task] = source.read_tasks(ReadRequest())
    assert "s3cret" not in repr(source) + repr(task) + source.name


def test_a_new_dataset_prints_no_warning(tmp_path: Path) -> None:
    code = f"import penstock as ps; ps.from_pydict({{'a': [1]}}).write_lance({str(tmp_path / 'x')!r}, mode='overwrite')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
