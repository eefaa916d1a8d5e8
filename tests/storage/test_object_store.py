"""Reading from and writing to an S3 API: patterns, pushdown, commits, crashes, and secrets."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import cloudpickle
import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch.utils.data

import penstock as ps
from penstock.errors import InvalidArgumentError, OutputExistsError, PathNotFoundError, ReadError, UdfError, WriteError
from penstock.io.commit import lease
from penstock.io.commit.output import Output
from penstock.io.tables.huggingface import hub_sink
from penstock.io.tables.lance import lance_sink
from penstock.io.writer import file_sink
from penstock.plan.lower import lower
from penstock.plan.optimizer import optimize
from penstock.plan.stages import Read
from penstock.storage.storage_options import StorageOptions, library_options
from tests.storage.servers import ROOT, Bucket, new_bucket, s3_client
from tests.storage.web import Web


def parquet_bytes(columns: dict[str, Any], **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, **options)
    return buffer.getvalue()


@pytest.fixture
def filled(bucket: Bucket) -> Bucket:
    for year in (1, 2):
        for number in range(2):
            rows = parquet_bytes({"a": list(range(number * 10, number * 10 + 10)), "b": ["x"] * 10}, row_group_size=4)
            bucket.store.put(f"pq/year={year}/f{number}.parquet", rows)
    bucket.store.put("pq/_SUCCESS", b"")
    bucket.store.put("csv/a.csv", b"a,b\n1,x\n2,y\n")
    bucket.store.put("csv/b.csv", b"a,b\n3,z\n")
    bucket.store.put("text/t.txt.gz", gzip.compress(b"one\ntwo\n"))
    bucket.store.put("json/a.jsonl", b'{"a": 1}\n')
    return bucket


def test_readers(filled: Bucket) -> None:
    url, options = filled.url, filled.options
    frame = ps.read_parquet(f"{url}/pq", hive_partitioning=True, file_path_column="p", storage_options=options)
    kept = frame.where((ps.col("a") > 17) & (ps.col("year") == 2)).select("a", "p")
    assert kept.to_pydict() == {"a": [18, 19], "p": [f"{url}/pq/year=2/f1.parquet"] * 2}
    assert ps.read_csv(f"{url}/csv/*.csv", storage_options=options).to_pydict()["a"] == [1, 2, 3]
    assert ps.read_text(f"{url}/text/", storage_options=options).to_pydict() == {"text": ["one", "two"]}
    assert ps.read_json(f"{url}/json/a.jsonl", storage_options=options).to_pydict() == {"a": [1]}
    listed = ps.from_glob_path(f"{url}/csv/*", storage_options=options)
    assert listed.to_pydict() == {
        "path": [f"{url}/csv/a.csv", f"{url}/csv/b.csv"],
        "size": [12, 8],
        "num_rows": [None, None],
    }
    contents = ps.read_binary_files(f"{url}/csv", include_paths=True, storage_options=options)
    assert contents.to_pydict() == {"bytes": [b"a,b\n1,x\n2,y\n", b"a,b\n3,z\n"], "path": listed.to_pydict()["path"]}


@pytest.mark.parametrize(
    ("pattern", "num_rows"),
    [("pq", 40), ("pq/", 40), ("pq/*", 40), ("pq/*/f1.parquet", 20), ("pq/**/f[01].parquet", 40), ("**/f0*", 20)],
)
def test_patterns(filled: Bucket, pattern: str, num_rows: int) -> None:
    assert ps.read_parquet(f"{filled.url}/{pattern}", storage_options=filled.options).count_rows() == num_rows


def test_keys_that_are_not_paths_are_an_error_that_says_what_to_do(bucket: Bucket) -> None:
    with contextlib.closing(s3_client(bucket.options)) as client:
        for key in ("k/a.txt", "k//b.txt"):
            client.put_object(Bucket=bucket.name, Key=key, Body=key.encode())
    with pytest.raises(ReadError, match=r"Cannot list 's3://.*/k'.* rename such keys"):
        ps.read_text(f"{bucket.url}/k", storage_options=bucket.options)
    assert ps.read_text(f"{bucket.url}/k/a.txt", storage_options=bucket.options).to_pydict() == {"text": ["k/a.txt"]}


def test_folder_markers_are_not_files(bucket: Bucket) -> None:
    """The consoles of the stores make them: empty objects whose key ends in a slash."""
    options = bucket.options
    with contextlib.closing(s3_client(options)) as client:
        for key in ["photos/", "photos/a.txt", "photos/empty.txt", "photos/new/", "photos/old/", "photos/old/b.txt"]:
            client.put_object(Bucket=bucket.name, Key=key, Body=b"" if key.endswith(("/", "empty.txt")) else b"text")
    direct = [f"{bucket.url}/photos/{name}" for name in ("a.txt", "empty.txt")]
    for pattern, paths in (
        ("photos", [*direct, f"{bucket.url}/photos/old/b.txt"]),
        ("photos/**", [*direct, f"{bucket.url}/photos/old/b.txt"]),
        ("photos/*.txt", direct),
        ("**", [*direct, f"{bucket.url}/photos/old/b.txt"]),
    ):
        listed = ps.from_glob_path(f"{bucket.url}/{pattern}", storage_options=options).to_pydict()["path"]
        assert listed == (direct if pattern == "photos" else paths)  # a folder's own files
        assert ps.from_files(f"{bucket.url}/{pattern}", storage_options=options).count_rows() == len(paths)
    assert ps.read_text(f"{bucket.url}/photos/*", storage_options=options).to_pydict() == {"text": ["text", "text"]}
    contents = ps.read_binary_files(f"{bucket.url}/photos/*", storage_options=options).to_pydict()
    assert contents == {"bytes": [b"text", b"", b"text"]}
    assert not ps.File(f"{bucket.url}/photos", storage_options=options).exists()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("pk", "does not exist"),
        ("csv/*.tsv", r"No file matches .*Did you mean '.\.csv'"),
        ("csv/c.csv", r"Did you mean"),
    ],
)
def test_what_is_not_there_is_named(filled: Bucket, path: str, message: str) -> None:
    with pytest.raises(PathNotFoundError, match=message):
        ps.read_csv(f"{filled.url}/{path}", storage_options=filled.options)


def test_a_bucket_that_does_not_exist_is_named(bucket: Bucket) -> None:
    options, missing = {"storage_options": bucket.options}, f"{bucket.url}-2"
    words = f"bucket {missing} does not exist. Create it first, or check its name"
    for path in ("a.csv", "folder/", "folder/*.csv", ""):
        with pytest.raises(PathNotFoundError, match=words):
            ps.read_csv(f"{missing}/{path}", **options)
    frame = ps.from_pydict({"a": [1]})
    for resume in (False, True):
        with pytest.raises(WriteError, match=words):
            frame.write_parquet(f"{missing}/out", resume=resume, **options)
    with pytest.raises(WriteError, match="its bucket does not exist"):
        frame.write_lance(f"{missing}/a.lance", **options)


@pytest.mark.parametrize("path", ["s3://", "s3:///out"])
def test_a_path_without_a_bucket_is_refused(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match="needs a bucket: s3://bucket/folder"):
        ps.read_csv(path)
    with pytest.raises(InvalidArgumentError, match="needs a bucket: s3://bucket/folder"):
        ps.from_pydict({"a": [1]}).write_parquet(path)
    assert not any(tmp_path.iterdir())


def test_only_the_columns_and_row_groups_asked_for_are_read(web: Web) -> None:
    wide = {f"c{number}": os.urandom(20_000).hex()[:20_000] for number in range(20)}
    content = parquet_bytes(
        {"a": range(20), **{name: [text] * 20 for name, text in wide.items()}},
        row_group_size=5,
        use_dictionary=False,
        compression="none",
    )
    url = web.put("wide.parquet", content)
    assert len(content) > 5_000_000
    frame = ps.read_parquet(url)
    assert frame.where(ps.col("a") >= 15).select("a", ps.col("c3").length().alias("n")).to_pydict() == {
        "a": [15, 16, 17, 18, 19],
        "n": [20_000] * 5,
    }
    assert web.nbytes_sent < 700_000
    assert all(asked.range for asked in web.asked if asked.method == "GET")


def test_web_files_and_their_limits(web: Web) -> None:
    url = web.put("a.csv", b"a\n1\n")
    assert ps.read_csv(f"{url}?token=abc", file_path_column="p").to_pydict() == {"a": [1], "p": [f"{url}?token=abc"]}
    assert ps.read_csv([url, web.put("b.csv", b"a\n2\n", "chunked")]).to_pydict() == {"a": [1, 2]}
    with pytest.raises(PathNotFoundError, match="name each file") as caught:
        ps.read_csv(f"{web.url}/plain/no*.csv?token=abc")
    assert "abc" not in str(caught.value)


# --- write ---

FRAME = {"a": [1, 2, 3], "g": ["x", "y", "x"]}


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_what_is_written_can_be_read_back(bucket: Bucket, kind: str) -> None:
    root, options = f"{bucket.url}/deep/out", {"storage_options": bucket.options}
    written = getattr(ps.from_pydict(FRAME), f"write_{kind}")(root, **options)
    assert written.to_pydict()["rows"] == [3]
    assert getattr(ps, f"read_{kind}")(root, **options).to_pydict() == FRAME
    assert [f"s3://{bucket.name}/{key}" for key in bucket.keys] == written.to_pydict()["path"]


def test_modes(bucket: Bucket) -> None:
    root, options = f"{bucket.url}/out", {"storage_options": bucket.options}
    frame = ps.from_pydict(FRAME)
    frame.write_parquet(root, partition_cols=["g"], **options)
    assert ps.read_parquet(root, hive_partitioning=True, **options).count_rows() == 3
    with pytest.raises(OutputExistsError, match="mode='overwrite'"):
        frame.write_parquet(root, **options)
    frame.write_parquet(root, mode="append", **options)
    assert ps.read_parquet(root, **options).count_rows() == 6
    frame.limit(1).write_parquet(root, mode="overwrite", **options)
    assert ps.read_parquet(root, **options).to_pydict() == {"a": [1], "g": ["x"]}
    assert len(bucket.keys) == 1
    bucket.store.put("file", b"")
    with pytest.raises(WriteError, match="it is an object"):
        frame.write_parquet(f"{bucket.url}/file", **options)


def test_batches_of_different_types_make_files_of_one(bucket: Bucket) -> None:
    root, options = f"{bucket.url}/out", {"storage_options": bucket.options}
    frame = ps.range(4).map_batches(lambda b: {"a": [1.5 if b["id"][0] > 1 else 1]}, batch_size=1)
    frame.write_parquet(root, rows_per_file=1, **options)
    assert sorted(ps.read_parquet(root, **options).to_pydict()["a"]) == [1.0, 1.0, 1.5, 1.5]


@ps.func
def failing(number: int) -> int:
    raise ValueError("no")


def test_a_failed_write_leaves_the_old_data_and_nothing_else(bucket: Bucket) -> None:
    root, options = f"{bucket.url}/out", {"storage_options": bucket.options}
    ps.from_pydict(FRAME).write_parquet(root, **options)
    before = bucket.keys
    with pytest.raises(UdfError):
        ps.from_pydict(FRAME).select(failing(ps.col("a"))).write_parquet(root, mode="overwrite", **options)
    assert bucket.keys == before


def test_rows_that_failed_are_kept_beside(bucket: Bucket) -> None:
    root, options = f"{bucket.url}/out", {"storage_options": bucket.options}
    tolerant = ps.func(on_error="ignore")(lambda_int)
    for _ in range(2):
        ps.from_pydict(FRAME).select(tolerant(ps.col("a"))).write_parquet(root, mode="overwrite", **options)
        assert [key.split("/")[1] for key in bucket.keys].count("_errors") == 1
    assert ps.read_parquet(root, **options).to_pydict() == {"a": [1, None, 3]}
    assert ps.read_parquet(f"{root}/_errors", **options).to_pydict()["error_type"] == ["ValueError"]


def lambda_int(number: int) -> int:
    if number == 2:
        raise ValueError("no")
    return number


def test_nothing_is_seen_before_the_commit(bucket: Bucket) -> None:
    root, options = f"{bucket.url}/out", {"storage_options": bucket.options}
    ps.from_pydict({"a": [0]}).write_parquet(root, **options)
    seen: list[Any] = []

    def look(batch: dict[str, Any]) -> dict[str, Any]:
        seen.append(ps.read_parquet(root, **options).to_pydict())
        return batch

    ps.range(3).map_batches(look, batch_size=1).write_parquet(root, mode="overwrite", rows_per_file=1, **options)
    assert seen == [{"a": [0]}] * 3
    assert ps.read_parquet(root, **options).count_rows() == 3


# --- crashes ---


@contextlib.contextmanager
def living_run(bucket: Bucket) -> Iterator[Output]:
    """Begin a run that has stored one file, and end it without a commit."""
    run = Output(f"{bucket.url}/out", StorageOptions(bucket.options), "20240101T000000-aaaaaaaa")
    run.begin()
    Path(run.files.path_for("new.parquet")).write_bytes(parquet_bytes({"a": [7]}))
    run.files.store(["new.parquet"])
    yield run
    run._end()


def test_a_commit_that_was_cut_short_is_finished_by_the_next_write(bucket: Bucket) -> None:
    bucket.store.put("out/old.parquet", parquet_bytes({"a": [0]}))
    with living_run(bucket) as run:
        bucket.store.put(
            f"out/{run.manifest}",
            json.dumps({"moves": ["new.parquet"], "deletes": ["out.parquet", "old.parquet"]}).encode(),
        )
    ps.from_pydict({"a": [8]}).write_parquet(f"{bucket.url}/out", mode="append", storage_options=bucket.options)
    assert sorted(ps.read_parquet(f"{bucket.url}/out", storage_options=bucket.options).to_pydict()["a"]) == [7, 8]
    assert not any("staging" in key for key in bucket.keys)


def test_a_living_run_is_left_alone_until_it_ends(bucket: Bucket) -> None:
    frame = ps.from_pydict({"a": [8]})
    with living_run(bucket):
        with pytest.raises(WriteError, match="in progress"):
            frame.write_parquet(f"{bucket.url}/out", mode="overwrite", storage_options=bucket.options)
        frame.write_parquet(f"{bucket.url}/out", mode="append", storage_options=bucket.options)
        assert any(key.endswith("data/new.parquet") for key in bucket.keys)
    frame.write_parquet(f"{bucket.url}/out", mode="overwrite", storage_options=bucket.options)
    assert len(bucket.keys) == 1


def test_a_run_that_does_not_renew_its_lease_is_dead(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    with living_run(bucket):
        monkeypatch.setattr(lease, "DEAD_AFTER", timedelta(seconds=-1))
        ps.from_pydict({"a": [8]}).write_parquet(f"{bucket.url}/out", mode="overwrite", storage_options=bucket.options)
        assert len(bucket.keys) == 1


def test_what_a_killed_process_leaves_is_removed_by_the_next_write(bucket: Bucket, tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import os, signal, sys, json, penstock as ps
        options = json.loads(sys.argv[2])
        def end(batch):
            if batch["id"][0] == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return batch
        ps.range(3).map_batches(end, batch_size=1).write_parquet(sys.argv[1], rows_per_file=1, storage_options=options)
    """)
    command = [sys.executable, "-c", script, f"{bucket.url}/out", json.dumps(bucket.options)]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert bucket.keys
    assert all("_penstock_staging" in key for key in bucket.keys)
    ps.from_pydict({"a": [8]}).write_parquet(f"{bucket.url}/out", storage_options=bucket.options)
    assert len(bucket.keys) == 1


# --- secrets and options ---


def test_secrets_are_never_shown(
    bucket: Bucket, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    bucket.store.put("x.parquet", parquet_bytes({"a": [1]}))
    frame = ps.read_parquet(f"{bucket.url}/x.parquet", storage_options=bucket.options)
    column = ps.col("a").cast("string").download(on_error="log", storage_options=bucket.options)
    lazy = frame.with_column("d", column)
    texts = [repr(frame), repr(lazy), repr(column), repr(frame._plan), str(lazy._plan), repr(bucket.store)]
    lazy.explain()
    lazy.collect()
    wrong = {**bucket.options, "endpoint_url": "http://127.0.0.1:1", "max_retries": 0}
    with pytest.raises(ReadError) as caught:
        ps.read_parquet(f"{bucket.url}/x.parquet", storage_options=wrong)
    texts += [str(caught.value), repr(caught.value), *map(str, lazy.errors().to_pylist())]
    shown = capsys.readouterr()
    texts += [shown.out, shown.err, caplog.text]
    for text in texts:
        assert "very-secret-value" not in text
        assert "AKIATESTKEY" not in text


@pytest.fixture(scope="module")
def secretive(s3_endpoint: str) -> Bucket:
    """A bucket with a file of each kind; it takes any secret."""
    bucket = new_bucket(s3_endpoint)
    bucket.options |= {"secret": SECRET, "token": f"{SECRET}-of-a-session"}
    df = ps.from_pydict({"a": [1, 2]})
    df.write_parquet(f"{bucket.url}/parquet", storage_options=bucket.options)
    df.write_csv(f"{bucket.url}/csv", storage_options=bucket.options)
    df.write_lance(f"{bucket.url}/t.lance", storage_options=bucket.options)
    deltalake.write_deltalake(
        f"{bucket.url}/delta",
        pa.table({"a": [1, 2]}),
        storage_options={**(library_options(bucket.url, bucket.options) or {}), "aws_s3_allow_unsafe_rename": "true"},
    )
    return bucket


SECRET = "wJalrXUtnFEMI/K7MDENG"
FRAMES: dict[str, Callable[[str, Any], ps.DataFrame]] = {
    "parquet": lambda url, options: ps.read_parquet(f"{url}/parquet", storage_options=options),
    "csv": lambda url, options: ps.read_csv(f"{url}/csv", storage_options=options),
    "text": lambda url, options: ps.read_text(f"{url}/csv", storage_options=options),
    "contents": lambda url, options: ps.read_binary_files(f"{url}/csv", storage_options=options),
    "lance": lambda url, options: ps.read_lance(f"{url}/t.lance", storage_options=options),
    "delta": lambda url, options: ps.read_deltalake(f"{url}/delta", storage_options=options),
    "files": lambda url, options: ps.from_files(f"{url}/csv", storage_options=options),
    "download": lambda url, options: ps.from_files(f"{url}/csv", storage_options=options).select(
        ps.col("file").file_path().download(storage_options=options)
    ),
    "upload": lambda url, options: ps.from_pydict({"b": [b"x"]}).select(
        ps.col("b").upload(f"{url}/up", storage_options=options)
    ),
    "headers": lambda url, options: ps.from_pydict({"u": ["https://a/b"]}).select(
        ps.col("u").download(storage_options={"headers": {"Authorization": f"Bearer {options['secret']}"}})
    ),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_pickled_plans_and_tasks_hold_no_secrets(kind: str, secretive: Bucket) -> None:
    df = FRAMES[kind](secretive.url, secretive.options)
    stages = lower(optimize(df._plan), is_ordered=True)
    tasks = [
        task
        for stage in stages
        if isinstance(stage.work, Read)
        for task in stage.work.source.read_tasks(stage.work.request)
    ]
    for part in (df._plan, stages, tasks):
        assert SECRET.encode() not in cloudpickle.dumps(part)
    if kind not in ("upload", "headers"):
        assert cloudpickle.loads(cloudpickle.dumps(df)).collect().count_rows() > 0, "in a process that knows the secret"


def test_pickled_sinks_hold_no_secrets(secretive: Bucket) -> None:
    schema, options = ps.Schema.from_pydict({"a": "int64"}), secretive.options
    for sink in (
        file_sink(f"{secretive.url}/out", "parquet", storage_options=options),
        lance_sink(f"{secretive.url}/out.lance", mode="create", schema=schema, storage_options=options),
        hub_sink("me/rows", schema=schema, storage_options={"token": SECRET}),
    ):
        assert SECRET.encode() not in cloudpickle.dumps(sink)
        assert SECRET not in repr(sink)


@ps.func(use_process=True)
def first_byte(path: str) -> bytes:
    return ps.File(path).read()[:1]


def test_worker_processes_get_the_secrets_that_plans_lack(secretive: Bucket) -> None:
    files = ps.from_files(f"{secretive.url}/csv", storage_options=secretive.options)
    assert files.select(first_byte(ps.col("file").file_path())).to_pydict() == {"file": [b'"']}
    rows = ps.read_parquet(f"{secretive.url}/parquet", storage_options=secretive.options)
    loader = torch.utils.data.DataLoader(
        rows.to_torch_iterable(), batch_size=None, num_workers=1, multiprocessing_context="spawn"
    )
    assert [int(row["a"]) for row in loader] == [1, 2]


def test_a_plan_that_was_saved_without_its_secrets_says_so(secretive: Bucket, tmp_path: Path) -> None:
    df = ps.read_parquet(f"{secretive.url}/parquet", storage_options=secretive.options)
    (tmp_path / "plan").write_bytes(cloudpickle.dumps(df))
    code = "import cloudpickle, sys; print(cloudpickle.load(open(sys.argv[1], 'rb')).count_rows())"
    command, environment = [sys.executable, "-c", code, str(tmp_path / "plan")], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert "AuthenticationError: This plan was saved without a key that it needs" in done.stderr


def test_options_are_checked() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'secrt' is not known.*Did you mean 'secret'") as caught:
        ps.read_csv("s3://bucket/x.csv", storage_options={"key": "a", "secrt": "hidden-value"})
    assert "hidden-value" not in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="a dict"):
        ps.read_csv("s3://bucket/x.csv", storage_options="key=1")  # type: ignore[arg-type]


def test_a_bucket_that_refuses(bucket: Bucket) -> None:
    bucket.store.put("x", b"private")
    options = {"endpoint_url": bucket.options["endpoint_url"], "region": "us-east-1", "anon": True}
    with pytest.raises(ReadError, match="refuses access"):
        ps.File(f"{bucket.url}/x", storage_options=options).read()
    del options["anon"]
    with pytest.raises(ReadError, match="refuses access"):
        ps.read_text(f"{bucket.url}/x".replace("://", "://anonymous@"), storage_options=options).to_pydict()
