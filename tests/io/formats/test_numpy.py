"""NumPy files, against NumPy itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import CorruptFileError, InvalidArgumentError, OutputExistsError, WriteError
from penstock.io.file_source import FileSource
from penstock.io.formats.numpy import NumpyFormat
from penstock.protocols import ReadRequest


def rows_of(df: ps.DataFrame) -> Any:
    return np.concatenate([batch["data"] for batch in df.iter_batches(batch_format="numpy")])


@pytest.mark.parametrize(
    "array",
    [
        np.arange(5),
        np.linspace(0, 1, 6, dtype=np.float32),
        np.array([True, False]),
        np.arange(24, dtype=np.uint8).reshape(4, 2, 3),
        np.asfortranarray(np.arange(6.0).reshape(3, 2)),
        np.arange(3, dtype=">i4"),
        np.array(["a", "bc"]),
        np.empty((0, 3)),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_are_rows(tmp_path: Path, array: Any) -> None:
    np.save(tmp_path / "a.npy", array)
    found = ps.read_numpy(tmp_path / "a.npy")
    assert found.count_rows() == len(array)
    if len(array):
        assert np.array_equal(rows_of(found), array)


def test_files_follow_each_other(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(2))
    np.save(tmp_path / "b.npy", np.array(7))  # a single value is one row
    found = ps.read_numpy(tmp_path, include_paths=True).to_pydict()
    paths = [str(tmp_path / name) for name in ("a.npy", "a.npy", "b.npy")]
    assert found == {"data": [0, 1, 7], "path": paths}


def test_large_files_are_read_in_parts(tmp_path: Path) -> None:
    array = np.arange(20 * 2**20, dtype=np.int64)
    np.save(tmp_path / "a.npy", array)
    tasks = list(FileSource(NumpyFormat(), tmp_path / "a.npy").read_tasks(ReadRequest()))
    assert len(tasks) == 3
    batches = [batch for task in tasks for batch in task.read()]
    assert max(batch.nbytes for batch in batches) <= 16 * 2**20
    assert np.array_equal(np.concatenate([batch.column(0).to_numpy() for batch in batches]), array)


def test_columns_are_written_as_numpy_reads_them(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((10, 3, 4)).astype(np.float32)
    df = ps.from_numpy({"image": images, "id": np.arange(10), "flag": np.arange(10) > 4})
    written = df.write_numpy(str(tmp_path / "images"), column="image", rows_per_file=6).to_pydict()
    assert written["rows"] == [6, 4]
    assert np.array_equal(np.concatenate([np.load(path) for path in written["path"]]), images)
    assert np.array_equal(rows_of(ps.read_numpy(tmp_path / "images")), images)
    for column in ("id", "flag"):
        [path] = df.write_numpy(str(tmp_path / column), column=column).to_pydict()["path"]
        assert np.load(path).tolist() == df.to_pydict()[column]
    with pytest.raises(OutputExistsError):
        df.write_numpy(str(tmp_path / "id"), column="id")


def test_an_empty_result_has_a_shape(tmp_path: Path) -> None:
    df = ps.from_numpy({"x": np.ones((2, 3)), "id": np.arange(2)}).where(ps.col("id") > 5)
    [path] = df.write_numpy(str(tmp_path / "out"), column="x").to_pydict()["path"]
    assert np.load(path).shape == (0, 3)


def test_what_numpy_files_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="column 's' of type string is not an array of one shape"):
        ps.from_pydict({"s": ["a"]}).write_numpy(str(tmp_path / "s"), column="s")
    with pytest.raises(WriteError, match="column 'a' has nulls"):
        ps.from_pydict({"a": [1, None]}).write_numpy(str(tmp_path / "a"), column="a")


def test_bad_files_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(CorruptFileError, match=r"objects\.npy': it holds Python objects"):
        ps.read_numpy(tmp_path / "objects.npy")
    np.save(tmp_path / "cut.npy", np.arange(100))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:-9])
    with pytest.raises(CorruptFileError, match=r"cut\.npy': it ends within row 98 of 100"):
        ps.read_numpy(tmp_path / "cut.npy").collect()
    (tmp_path / "text.npy").write_text("hello there, I am no array")
    with pytest.raises(CorruptFileError, match=r"text\.npy': the magic string is not correct"):
        ps.read_numpy(tmp_path / "text.npy")
