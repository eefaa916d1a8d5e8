"""Ten thousand small objects, and the same reads and writes over the APIs of S3, Google and Azure."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import JobRunningError, PathNotFoundError, PenstockError, ReadError
from penstock.jobs.folder import open_job_folder
from penstock.storage.storage_options import StorageOptions
from tests.storage.servers import Bucket

NUM_SMALL = 2500  # more than two pages of a listing


@pytest.fixture(params=["s3", "gs", "az"])
def cloud(request: pytest.FixtureRequest, quick_endpoint: str) -> Bucket:
    options: dict[str, dict[str, Any]] = {
        "s3": {"key": "me", "secret": "very-secret", "region": "us-east-1", "endpoint_url": quick_endpoint},
        "gs": {"token": "very-secret", "endpoint_url": quick_endpoint},
        "az": {"account": "account", "key": "dmVyeS1zZWNyZXQ=", "endpoint_url": f"{quick_endpoint}/account"},
    }
    return Bucket(f"test-{uuid.uuid4().hex[:12]}", options[request.param], request.param)


def test_files(cloud: Bucket) -> None:
    options = {"storage_options": cloud.options}
    paths = [f"{cloud.url}/in/{name}" for name in ("a.txt", "b c.txt", "d/e.txt")]
    contents = [b"one", b"two", b"three"]
    df = ps.from_pydict({"to": paths, "data": contents})
    assert df.select(ps.col("data").upload(ps.col("to"), **options)).to_pydict() == {"data": paths}
    listed = ps.from_glob_path(f"{cloud.url}/in/**", **options)
    assert listed.select("path", "size").to_pydict() == {"path": paths, "size": [3, 3, 5]}
    assert listed.select(ps.col("path").download(**options)).to_pydict() == {"path": contents}
    with ps.File(paths[2], **options).open() as file:
        file.seek(2)
        assert file.read(2) == b"re"
    with pytest.raises(PathNotFoundError, match=r"in/none\.txt' does not exist"):
        ps.File(f"{cloud.url}/in/none.txt", **options).read()


def test_writes_are_committed(cloud: Bucket) -> None:
    root, options = f"{cloud.url}/out", {"storage_options": cloud.options}
    rows = {"a": [1, 2, 3], "g": ["x", "y", "x"]}
    ps.from_pydict(rows).write_parquet(root, partition_cols=["g"], **options)
    found = ps.read_parquet(root, hive_partitioning=True, **options)
    assert sorted(found.where(ps.col("g") == "x").to_pydict()["a"]) == [1, 3]
    ps.from_pydict(rows).limit(1).write_parquet(root, mode="overwrite", **options)
    assert ps.read_parquet(root, **options).to_pydict() == {"a": [1], "g": ["x"]}
    assert len(cloud.keys) == 1


def test_a_job_that_failed_is_resumed_and_has_one_run_at_a_time(cloud: Bucket, tmp_path: Path) -> None:
    root, options, broken = f"{cloud.url}/out", {"storage_options": cloud.options}, tmp_path / "broken"
    broken.touch()

    @ps.func(return_dtype=ps.DataType.int64(), cache=True)
    def one_more(a: int) -> int:
        if broken.exists() and a == 19:
            raise ValueError("not yet")
        return a + 1

    frame = ps.from_pydict({"a": list(range(20))}).select(one_more(ps.col("a")))
    with ps.config(cache_dir=str(tmp_path)), pytest.raises(PenstockError, match="not yet"):
        frame.write_parquet(root, resume=True, **options)
    broken.unlink()
    other = open_job_folder(root, StorageOptions(cloud.options)).lock
    other.take()
    assert not cloud.store.create(f"out/_penstock_job/lock/{2:06d}", b"")
    with pytest.raises(JobRunningError):
        frame.write_parquet(root, resume=True, **options)
    other.release()
    with ps.config(cache_dir=str(tmp_path)):
        frame.write_parquet(root, resume=True, **options)
        frame.write_parquet(root, resume=True, **options)
    assert ps.read_parquet(root, **options).to_pydict() == {"a": list(range(1, 21))}


def test_a_cloud_that_refuses(cloud: Bucket) -> None:
    options = {"anon": True, "endpoint_url": cloud.options["endpoint_url"], "region": "us-east-1", "account": "account"}
    if cloud.scheme != "s3":
        del options["region"]
    if cloud.scheme != "az":
        del options["account"]
    with pytest.raises(ReadError, match="refuses access"):
        ps.File(f"{cloud.url}/x", storage_options=options).read()


@pytest.mark.parametrize("cloud", ["s3"], indirect=True)
def test_many_small_objects(cloud: Bucket) -> None:
    options = {"storage_options": cloud.options}
    paths = [f"{cloud.url}/many/{number % 10}/{number:05d}" for number in range(NUM_SMALL)]
    contents = [str(number).encode() for number in range(NUM_SMALL)]
    df = ps.from_pydict({"to": paths, "data": contents})
    df.select(ps.col("data").upload(ps.col("to"), **options)).collect()
    listed = ps.from_glob_path(f"{cloud.url}/many/**", **options)
    assert listed.to_pydict()["path"] == sorted(paths)
    found = listed.select("path", data=ps.col("path").download(**options)).to_pydict()
    assert dict(zip(found["path"], found["data"], strict=True)) == dict(zip(paths, contents, strict=True))
    whole = ps.read_binary_files(f"{cloud.url}/many/**", **options)
    assert sorted(whole.to_pydict()["bytes"]) == sorted(contents)
