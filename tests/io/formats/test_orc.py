"""ORC files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
import penstock.compat.ray as ray
from penstock.errors import InvalidArgumentError, TypeMismatchError

COLUMNS = {
    "id": pa.array([1, 2, None]),
    "text": pa.array(["a", None, ""]),
    "xs": pa.array([[1.5], [], None], pa.list_(pa.float32())),
    "at": pa.array([1, None, -1], pa.timestamp("ns", "UTC")),
    "point": pa.array([{"x": 1}, None, {"x": None}]),
}


def test_rows_come_back(tmp_path: Path) -> None:
    df = ps.from_arrow(pa.table(COLUMNS))
    files = df.write_orc(str(tmp_path), compression="zstd").to_pydict()
    assert files["rows"] == [3]
    assert ps.read_orc(str(tmp_path)).to_arrow().equals(df.to_arrow())
    assert ps.read_orc(str(tmp_path)).count_rows() == 3
    df.where(ps.col("id") > 5).write_orc(str(tmp_path), mode="overwrite")
    back = ps.read_orc(str(tmp_path))
    assert (back.to_pydict()["id"], back.schema) == ([], df.schema)


def test_a_job_of_orc_files_goes_on(tmp_path: Path) -> None:
    folder = str(tmp_path / "out")
    first = ps.range(10).write_orc(folder, rows_per_file=4, resume=True).to_pydict()
    assert ps.range(10).write_orc(folder, rows_per_file=4, resume=True).to_pydict() == first
    assert sorted(ps.read_orc(folder).to_pydict()["id"]) == list(range(10))


def test_types_and_options_that_orc_lacks() -> None:
    with pytest.raises(TypeMismatchError, match="Column 'id' of type uint8 does not fit into ORC"):
        ps.range(1).select(ps.col("id").cast("uint8")).write_orc("nowhere")
    with pytest.raises(InvalidArgumentError, match="compression='gzip' is not known; use one of 'uncompressed'"):
        ps.range(1).write_orc("nowhere", compression="gzip")


def test_parameters_of_ray_data(tmp_path: Path) -> None:
    for _ in range(2):  # a second write appends
        ray.data.range(2).write_orc(str(tmp_path), arrow_orc_args_fn=lambda: {"compression": "zstd"}, concurrency=1)
    assert sorted(ray.data.read_orc(str(tmp_path)).unique("id")) == [0, 1]
    assert ray.data.read_orc(str(tmp_path)).count() == 4
    with pytest.raises(InvalidArgumentError, match=r"write_orc\(stripe_size="):
        ray.data.range(1).write_orc(str(tmp_path), stripe_size=1)
