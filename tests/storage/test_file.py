"""``File``: local, in memory, on a web server and in a bucket."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import InvalidArgumentError, PathNotFoundError, PenstockError, ReadError, TypeMismatchError
from penstock.storage import storage_options as shared
from tests.storage.servers import Bucket
from tests.storage.web import Web

CONTENT = bytes(range(256)) * 1000


def test_a_local_file(tmp_path: Path) -> None:
    path = tmp_path / "a b.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 100)
    for source in (str(path), path, f"file://{path}"):
        file = ps.File(source)
        assert (file.size(), file.name, file.exists(), file.mime_type()) == (108, "a b.png", True, "image/png")
        assert file.read() == path.read_bytes()
        with file.open() as content:
            content.seek(-3, 2)
            assert content.read() == b"xxx"


def test_a_file_in_memory() -> None:
    file = ps.File(b"GIF89a...")
    assert (file.path, file.name, file.size(), file.exists(), file.mime_type()) == (None, "", 9, True, "image/gif")
    with file.to_tempfile() as copy:
        assert Path(copy.name).read_bytes() == b"GIF89a..."
    assert not Path(copy.name).exists()


def test_a_temporary_copy_keeps_the_ending(tmp_path: Path) -> None:
    path = tmp_path / "song.mp3"
    path.write_bytes(b"ID3")
    with ps.File(path).to_tempfile() as copy:
        assert copy.name.endswith(".mp3")
        assert copy.read() == b"ID3"


def test_what_is_not_there(tmp_path: Path) -> None:
    missing = ps.File(tmp_path / "no.pdf")
    assert not missing.exists()
    assert missing.mime_type() == "application/pdf"
    for use in (missing.size, missing.read, missing.open, missing.to_tempfile):
        with pytest.raises(PathNotFoundError, match=r"no\.pdf"):
            use()
    with pytest.raises(ReadError, match="directory"):
        ps.File(tmp_path).read()
    with pytest.raises(InvalidArgumentError, match="path, a URL or bytes"):
        ps.File(5)  # type: ignore[arg-type]


def test_files_are_values() -> None:
    assert ps.File("a") == ps.File("a") != ps.File("b")
    assert ps.File("a") != ps.ImageFile("a")
    assert len({ps.File("a"), ps.File("a"), ps.File(b"a")}) == 2
    for file in (ps.File("s3://b/k", storage_options={"key": "k"}), ps.VideoFile(b"x")):
        copy = pickle.loads(pickle.dumps(file))
        assert copy == file
        assert copy._options == file._options
    assert repr(ps.AudioFile(ps.File("a"))) == "AudioFile('a')"


def test_secrets_of_a_url_are_not_shown() -> None:
    file = ps.File("https://me:pw@host/x.txt?X-Amz-Signature=abc&n=1", storage_options={"key": "topsecret"})
    for shown in (repr(file), str(file)):
        assert not any(secret in shown for secret in ("me:pw", "abc", "topsecret"))
        assert "n=1" in shown
    assert file.name == "x.txt"


@pytest.mark.parametrize("how", ["plain", "nohead", "whole", "chunked"])
def test_a_file_on_a_web_server(web: Web, how: str) -> None:
    file = ps.File(web.put("a.bin", CONTENT, how))
    assert file.size() == len(CONTENT)
    assert file.read() == CONTENT
    assert file.exists()
    with file.open(buffer_size=1000) as content:
        content.seek(200_000)
        assert content.read(10) == CONTENT[200_000:200_010]
    assert not ps.File(f"{web.url}/{how}/no").exists()


def test_another_range_than_requested_is_requested_again(web: Web) -> None:
    file = ps.File(web.put("a.bin", CONTENT[:10_500], "other1"))
    with file.open() as content:
        assert content.read() == CONTENT[:10_500]
    with file.open(buffer_size=5000) as content:
        content.seek(100)
        assert content.read(3000) == CONTENT[100:3100]


def test_a_server_that_sends_another_range_is_not_believed(web: Web) -> None:
    with (
        ps.File(web.put("a.bin", CONTENT, "other")).open() as content,
        pytest.raises(ReadError, match=r"asked for bytes 0 to 255999, .* 206 with 'bytes 1-255999/256000'"),
    ):
        content.read()


@pytest.mark.parametrize("how", ["plain", "whole"])
def test_a_file_that_is_replaced_while_it_is_read_is_an_error(web: Web, how: str) -> None:
    """Whatever its size; of a server that knows no ranges it was all read when it was opened."""
    for later in (CONTENT[::-1], CONTENT + b"x", b"short"):
        with ps.File(web.put("a.bin", CONTENT, how)).open(buffer_size=1000) as content:
            first = content.read(1000)
            web.put("a.bin", later)
            if how == "whole":
                assert first + content.read() == CONTENT
            else:
                with pytest.raises(ReadError, match=r"a\.bin' changed while it was read"):
                    content.read()


def test_an_object_that_is_replaced_while_it_is_read_is_an_error(bucket: Bucket) -> None:
    for later in (CONTENT[::-1], CONTENT + b"x"):
        bucket.store.put("a.bin", CONTENT)
        file = ps.File(f"{bucket.url}/a.bin", storage_options=bucket.options)
        with file.open(buffer_size=1000) as content, bucket.store.open_ranges("a.bin") as ranges:
            content.read(1000)
            ranges.prefetch([(0, 10), (20, 30)])
            assert ranges.read(10) == CONTENT[:10]
            bucket.store.put("a.bin", later)
            with pytest.raises(ReadError, match=r"a\.bin' changed while it was read"):
                content.read()
            with pytest.raises(ReadError, match=r"a\.bin' changed while it was read"):
                ranges.prefetch([(0, 10), (20, 30)])


def test_only_what_is_looked_at_is_read(web: Web) -> None:
    file = ps.File(web.put("a.bin", CONTENT))
    with file.open(buffer_size=1000) as content:
        content.seek(100_000)
        content.read(10)
        content.seek(5)
        content.read(10)
    assert web.nbytes_sent == 2001  # one for the size


def test_a_file_in_a_bucket(bucket: Bucket) -> None:
    bucket.store.put("a b/ü#1?.bin", CONTENT)
    file = ps.File(f"{bucket.url}/a b/ü#1?.bin", storage_options=bucket.options)
    assert (file.size(), file.exists(), file.name) == (len(CONTENT), True, "ü#1?.bin")
    with file.open(buffer_size=1000) as content:
        content.seek(-5, 2)
        assert content.read() == CONTENT[-5:]
    with file.to_tempfile(buffer_size=100_000) as copy:
        assert copy.read() == CONTENT
    assert not ps.File(f"{bucket.url}/no", storage_options=bucket.options).exists()


def test_the_environment_has_credentials(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.store.put("x", b"hello")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket.options["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket.options["secret"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.options["endpoint_url"])
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert ps.File(f"{bucket.url}/x").read() == b"hello"


# --- in columns and functions ---


@ps.func
def length(file: ps.File) -> int:
    with file.open() as content:
        return len(content.read())


@ps.func
def kind(file: ps.ImageFile | None, suffix: str = "") -> str:
    return type(file).__name__ + suffix


@ps.func
def as_file(path: str) -> ps.File:
    return ps.File(path)


@ps.func(use_process=True)
def length_elsewhere(file: ps.File) -> int:
    return file.size()


@ps.func(use_process=True, on_error="ignore")
def read_elsewhere(path: ps.File) -> str:
    return path.read().decode()


def test_workers_are_bound_by_the_settings_too(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    df = ps.from_pydict({"p": [str(tmp_path / "a.txt")]})
    assert df.select(read_elsewhere(ps.col("p"))).to_pydict() == {"p": ["hello"]}
    ps.set_config(allow_local_files=False)
    try:
        forbidden = df.select(read_elsewhere(ps.col("p")))
        assert forbidden.to_pydict() == {"p": [None]}
        assert forbidden.errors().to_pydict()["error_type"] == ["ForbiddenUrlError"]
    finally:
        ps.set_config(allow_local_files=True)


@ps.func(on_error="ignore")
def read_here(path: ps.File) -> str:
    return path.read().decode()


@ps.func(on_error="ignore")
async def read_async(path: ps.File) -> str:
    return path.read().decode()


@ps.func.batch(return_dtype=str, on_error="ignore")
def read_batch(paths: ps.Series) -> list[str]:
    return [ps.File(path).read().decode() for path in paths.to_pylist()]


def read_all(batch: dict[str, Any]) -> dict[str, Any]:
    return {"p": [ps.File(path).read().decode() for path in batch["p"]]}


def test_a_block_of_settings_holds_for_functions_wherever_they_run(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    df = ps.from_pydict({"p": [str(tmp_path / "a.txt")]})
    path = ps.col("p")
    reads = [read_here(path), read_batch(path), read_async(path), read_elsewhere(path)]
    for read in reads:
        query = df.select(read)
        with ps.config(allow_local_files=False):
            assert query.to_pydict() == {"p": [None]}
            rows = query.iter_rows()
            first = next(iter(rows))
        assert first == {"p": None}
        assert df.select(read).to_pydict() == {"p": ["hello"]}  # what counts is where the query runs
    queries = [
        df.map_batches(read_all),
        df.select(path.file().guess_mime_type()),
        df.select(length(path)),
    ]
    for query in queries:
        with ps.config(allow_local_files=False), pytest.raises(PenstockError, match="is a local file"):
            query.to_pydict()
    with ps.config(allow_local_files=False):
        built = [path.download(), path.file().upload(str(tmp_path / "out")), path.file_size(), path.file_exists()]
    for expression in built:  # these take the settings with them when they are built
        with pytest.raises(PenstockError, match="is a local file"):
            df.select(expression).to_pydict()


def test_a_query_started_in_a_block_keeps_its_settings(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    df = ps.from_pydict({"p": [str(tmp_path / "a.txt")] * 400})
    for read in (read_here, read_async):
        with ps.config(allow_local_files=False, memory_limit="1MB"):
            rows = iter(df.select(read(ps.col("p"))).into_batches(1).iter_rows())
            texts = [next(rows)["p"]]
        texts += [row["p"] for row in rows]
        assert texts == [None] * 400


@ps.cls
class Reader:
    @ps.method(return_dtype=str)
    def text(self, file: ps.File):  # type: ignore[no-untyped-def]
        with file.to_tempfile() as copy:
            return Path(copy.name).read_text()


def test_a_path_arrives_as_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "a.txt")
    Path(path).write_text("hello")
    df = ps.from_pydict({"p": [path]})
    found = df.select(
        length(ps.col("p")).alias("length"),
        kind(ps.col("p"), suffix="!").alias("kind"),
        Reader().text(ps.col("p")).alias("text"),
        as_file(ps.col("p")).alias("file"),
        length(as_file(ps.col("p"))).alias("again"),
    )
    assert found.to_pylist() == [
        {"length": 5, "kind": "ImageFile!", "text": "hello", "file": ps.File(path), "again": 5}
    ]


@ps.cls
class Tools:
    @staticmethod
    def name(file: ps.File, other: ps.File | None = None) -> str:
        return file.name + (other.name if other else "")

    def either(self, file: ps.File | str) -> str:
        return type(file).__name__


def test_what_an_annotation_asks_for() -> None:
    df = ps.from_pydict({"p": ["a/b"], "q": ["c/d"], "n": [1], "bytes": [b"x"]})
    tools = Tools()
    assert df.select(tools.name(ps.col("p"), other=ps.col("q"))).to_pydict() == {"p": ["bd"]}
    assert df.select(tools.name(ps.col("bytes"))).to_pydict() == {"bytes": [""]}
    assert df.select(tools.either(ps.col("p"))).to_pydict() == {"p": ["str"]}
    with pytest.raises(TypeMismatchError, match="cannot convert int64 to file"):
        df.select(tools.name(ps.col("n")))


def test_files_in_columns(tmp_path: Path) -> None:
    files = [ps.File("a"), None, ps.File(b"bytes")]
    df = ps.from_pydict({"f": files})
    assert df.schema["f"].dtype == ps.DataType.file()
    assert df.to_pydict() == {"f": files}
    df.write_parquet(str(tmp_path / "out"))
    assert ps.read_parquet(tmp_path / "out").to_pydict() == {"f": files}
    assert df.select(ps.col("f").video_file()).to_pydict()["f"][0] == ps.VideoFile("a")


def test_from_files_remembers_how_to_read_them(bucket: Bucket) -> None:
    for number in range(3):
        bucket.store.put(f"in/{number}.txt", b"x" * number)
    df = ps.from_files(f"{bucket.url}/in/*.txt", storage_options=bucket.options)
    sizes = df.select(ps.col("file").file_size().alias("n"), length_elsewhere(ps.col("file")).alias("m"))
    assert sizes.to_pydict() == {"n": [0, 1, 2], "m": [0, 1, 2]}
    listed = ps.from_glob_path(f"{bucket.url}/in/*.txt", storage_options=bucket.options)
    assert listed.select(ps.col("path").download()).to_pydict() == {"path": [b"", b"x", b"xx"]}
    stored = df.to_arrow()
    assert "very-secret-value" not in str(stored) + str(stored.schema.serialize().to_pybytes())


def test_options_are_not_for_a_column_of_paths() -> None:
    with pytest.raises(InvalidArgumentError, match=r"file has no option 'storage_options'.*from_files or download"):
        ps.col("p").file(storage_options={"key": "a", "secret": "b"})


def test_remembered_headers_go_to_their_server_only(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_by_place", {})
    headers = {"Authorization": "Bearer abc"}
    url = web.put("x", b"x")
    df = ps.from_files(url, storage_options={"headers": headers})
    web.asked.clear()
    other = url.replace("127.0.0.1", "localhost")
    assert df.select(length(ps.col("file"))).to_pydict() == {"file": [1]}
    assert {asked.headers.get("Authorization") for asked in web.asked} == {"Bearer abc"}
    web.asked.clear()
    assert ps.from_pydict({"p": [other]}).select(length(ps.col("p"))).to_pydict() == {"p": [1]}
    assert {asked.headers.get("Authorization") for asked in web.asked} == {None}


def test_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "folder").mkdir()
    for path in (str(pipe), "/dev/zero", f"file://{pipe}"):
        for look in (ps.File.read, ps.File.open, ps.File.size):
            with pytest.raises(ReadError, match="not a regular file"):
                look(ps.File(path))
        with pytest.raises(PenstockError, match="not a regular file"):
            ps.from_pydict({"p": [path]}).select(ps.col("p").download()).to_pydict()
    with pytest.raises(ReadError, match="Is a directory"):
        ps.File(str(tmp_path / "folder")).read()


def test_no_more_is_read_of_a_local_file_than_max_bytes() -> None:
    path = "/proc/self/maps"  # its size is said to be 0
    df = ps.from_pydict({"p": [path]})
    with pytest.raises(PenstockError, match="more than max_bytes=100 bytes"):
        df.select(ps.col("p").download(max_bytes=100)).to_pydict()
    assert len(df.select(ps.col("p").download()).to_pydict()["p"][0]) > 100
