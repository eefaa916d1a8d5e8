"""``download`` and ``upload``: good servers and bad ones, limits, and what may be reached."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import InvalidArgumentError, UdfError, WriteError
from penstock.plan.lower import lower
from penstock.plan.optimizer import optimize
from penstock.plan.stages import AtMost
from penstock.storage import storage_options as shared
from tests.storage.servers import Bucket
from tests.storage.web import Web


def downloaded(paths: list[str | None], **options: Any) -> list[bytes | None]:
    df = ps.from_pydict({"p": ps.Series.from_pylist(paths, dtype="string")})
    result: list[bytes | None] = df.select(ps.col("p").download(**options)).to_pydict()["p"]
    return result


def refused(path: str, match: str, **options: Any) -> None:
    with pytest.raises(UdfError, match=match):
        downloaded([path], **options)


def test_every_kind_of_place(web: Web, bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"local")
    bucket.store.put("x", b"object")
    url = web.put("x", b"web")
    paths = [str(tmp_path / "x"), f"file://{tmp_path}/x", url, f"{bucket.url}/x", None]
    assert downloaded(paths, storage_options=bucket.options) == [b"local", b"local", b"web", b"object", None]


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        ("gs", {"anon": True}),
        ("az", {"anon": True, "account": "me"}),
        ("s3", {"anon": True, "region": "us-east-1"}),
        ("s3", {"key": "a", "secret": "b", "region": "us-east-1"}),
    ],
)
def test_the_requests_of_each_object_store(web: Web, scheme: str, options: dict[str, Any]) -> None:
    web.put("x", b"object")
    options = {**options, "endpoint_url": web.url}
    assert downloaded([f"{scheme}://plain/x"], storage_options=options) == [b"object"]
    assert [(asked.method, asked.path) for asked in web.asked] == [("GET", "/plain/x")]
    assert ("authorization" in map(str.lower, web.asked[0].headers)) is ("key" in options)


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # it does not listen
        refused(f"http://127.0.0.1:{taken.getsockname()[1]}/x", "the server cannot be reached: Connection refused")


def test_order_and_many_rows(web: Web) -> None:
    urls = [web.put(str(number), str(number).encode()) for number in range(300)]
    assert downloaded(list(urls), max_connections=8) == [str(number).encode() for number in range(300)]
    assert len(web.asked) == 300
    assert len({asked.client_port for asked in web.asked}) <= 8  # connections are kept and used again


def test_a_file_column(web: Web) -> None:
    df = ps.from_pydict({"f": [ps.File(web.put("a", b"far")), ps.File(b"near"), None]})
    assert df.select(ps.col("f").download()).to_pydict() == {"f": [b"far", b"near", None]}


@pytest.mark.parametrize("how", ["flaky/2", "busy/3", "cut1", "chunked", "whole"])
def test_what_passes_is_tried_again(web: Web, how: str) -> None:
    assert downloaded([web.put("x", b"content" * 1000, how)]) == [b"content" * 1000]


@pytest.mark.parametrize(
    ("how", "reason", "num_asked"),
    [
        ("status/404", "does not exist", 1),
        ("status/403", "answers 403", 1),
        ("status/400", "answers 400", 1),
        ("busy/99", "answers 503", 5),
        ("cut", "(?i)payload|not enough|closed", 5),
    ],
)
def test_what_stays_broken_is_an_error(web: Web, how: str, reason: str, num_asked: int) -> None:
    refused(web.put("x", b"content" * 1000, how), reason)
    assert len(web.asked) == num_asked


def test_errors_are_the_rows_own(web: Web, tmp_path: Path) -> None:
    paths = [web.put("x", b"ok"), f"{web.url}/status/404/x", str(tmp_path / "missing"), "nosuch://x/y", "http://"]
    df = ps.from_pydict({"p": paths}).with_column("d", ps.col("p").download(on_error="null"))
    assert df.to_pydict()["d"] == [b"ok", None, None, None, None]
    errors = df.errors().to_pydict()
    assert sorted(errors["error_type"]) == [
        "InvalidArgumentError",
        "PathNotFoundError",
        "PathNotFoundError",
        "ReadError",
    ]
    assert set(errors["operator"]) == {"download"}


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        refused(f"http://127.0.0.1:{unused.getsockname()[1]}/x", "Cannot read")


def test_a_server_that_hangs(web: Web) -> None:
    refused(web.put("x", b"late", "hang"), "no result within 0.2 s", timeout=0.2)


def test_connections_are_bounded_and_kept(web: Web) -> None:
    urls = [web.put(str(number), b"x", "hang") for number in range(20)]
    result: list[Any] = []
    query = threading.Thread(target=lambda: result.append(downloaded(list(urls), max_connections=4)))
    query.start()
    while len(web.asked) < 4:
        query.join(0.01)
    assert len(web.asked) == 4
    web.release.set()
    query.join(60)
    assert result == [[b"x"] * 20]


@pytest.mark.parametrize("how", ["plain", "chunked"])
def test_a_file_may_have_a_largest_size(web: Web, how: str) -> None:
    url = web.put("x", b"x" * 1001, how)
    assert downloaded([url], max_bytes=1001) == [b"x" * 1001]
    refused(url, "more than max_bytes=1,000 bytes", max_bytes="1kB")


def test_a_local_file_may_have_a_largest_size(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * 1001)
    refused(str(tmp_path / "x"), "more than max_bytes", max_bytes=1000)


def test_local_files_of_any_size(tmp_path: Path) -> None:
    """A small file that the system holds in memory takes another way than a large one, or one without a size."""
    contents = [b"", b"x", b"y" * 2**20, b"z" * (2**20 + 1)]
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
    paths = [str(tmp_path / str(number)) for number in range(len(contents))]
    assert downloaded([*paths, "/proc/self/status"])[:-1] == contents
    assert downloaded(["/proc/self/status"]) != [b""]


def test_downloads_that_do_not_fit_the_budget_take_turns(web: Web) -> None:
    urls = [web.put(str(number), b"x" * 3_000_000) for number in range(12)]
    with ps.config(memory_limit="16MiB"):
        assert [len(content or b"") for content in downloaded(list(urls))] == [3_000_000] * 12


def test_options_are_checked() -> None:
    for options, reason in (
        ({"max_connections": 0}, "max_connections must be a whole number"),
        ({"on_error": "nul"}, "Did you mean 'null'"),
        ({"timeout": -1}, "timeout must be a number above 0; got -1"),
        ({"allow": "publc"}, "allow='publc'"),
        ({"allow": ["https://a.com/"]}, "keep their rows first"),
        ({"max_bytes": "many"}, "not a size"),
    ):
        with pytest.raises(InvalidArgumentError, match=reason):
            ps.col("x").download(**options)  # type: ignore[arg-type]


# --- what may be reached ---


def test_redirects_are_followed(web: Web) -> None:
    url = web.put("x", b"there")
    assert downloaded([f"{web.url}/to?url={url}", f"{web.url}/to?url=/plain/x"]) == [b"there", b"there"]
    refused(f"{web.url}/loop", "more than 10 redirects")
    refused(f"{web.url}/to?url=file:///etc/passwd", "not a web address")
    refused(f"{web.url}/to?url=http://[::1", r"Cannot read .*it redirects to 'http://\[::1', which is not a valid URL")
    refused("http://[::1", r"Cannot read 'http://\[::1': it is not a valid URL")


def test_public_means_no_local_files_and_no_private_addresses(web: Web, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"secret")
    port = web.url.rpartition(":")[2]
    web.put("x", b"inside")
    refused(str(tmp_path / "x"), "is a local file", allow="public")
    refused(f"file://{tmp_path}/x", "is a local file", allow="public")
    for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"):
        refused(f"http://{host}:{port}/plain/x", "private address|not a web address|Cannot read", allow="public")
    assert web.asked == []


@pytest.mark.parametrize("scheme", ["LOCAL", "ftp", "file", "odd"])
def test_a_rule_lets_only_known_schemes_pass(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "x").write_bytes(b"secret")
    url = f"{scheme}://{tmp_path}/x"
    refused(url, "is a local file|may not be read", allow="public")
    for rule in ("allow_local_files", "allow_private_urls")[: 1 if scheme == "file" else 2]:
        with ps.config(**{rule: False}):
            refused(url, "is a local file|may not be read")
            with pytest.raises(PermissionError):
                ps.File(url).read()


@pytest.mark.parametrize("url", ["ftp://h/x", "dir://h/x", "zip://x", "odd://me:word@h/x"])
def test_an_odd_scheme_is_a_clear_error(url: str) -> None:
    shown = url.replace("me:word", "***").replace("*", "[*]")
    refused(url, f"Cannot read '{shown}': {url.partition(':')[0]}:// URLs cannot be read here .*known are .* s3://")
    with pytest.raises(InvalidArgumentError, match=f"Cannot read '{shown}'"):
        ps.File(url).read()


def test_settings_forbid_for_the_whole_process(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = web.put("x", b"inside")
    (tmp_path / "x").write_bytes(b"secret")
    assert downloaded([url]) == [b"inside"]
    monkeypatch.setattr(sys.modules["penstock.config"], "_process_config", ps.get_config())  # restored after the test
    ps.set_config(allow_private_urls=False, allow_local_files=False)
    refused(url, "private address")
    refused(str(tmp_path / "x"), "is a local file")
    for path in (url, str(tmp_path / "x")):
        with pytest.raises(PermissionError):
            ps.File(path).read()


def test_a_header_is_sent_to_its_own_server_only(web: Web) -> None:
    url = web.put("x", b"x")
    other = url.replace("127.0.0.1", "localhost")
    options = {"headers": {"Authorization": "Bearer abc"}}
    downloaded([f"{web.url}/to?url={other}"], storage_options=options)
    assert [asked.headers.get("Authorization") for asked in web.asked] == ["Bearer abc", None]


def test_remembered_headers_are_sent_by_downloads(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_by_place", {})
    url = web.put("x", b"x")
    df = ps.from_files(url, storage_options={"headers": {"Authorization": "Bearer abc"}})
    web.asked.clear()
    assert df.select(ps.col("file").download()).to_pydict() == {"file": [b"x"]}
    assert downloaded([url, url.replace("127.0.0.1", "localhost")]) == [b"x", b"x"]
    assert sorted(str(asked.headers.get("Authorization")) for asked in web.asked) == ["Bearer abc"] * 2 + ["None"]
    own = {"headers": {"Authorization": "Bearer own"}}
    web.asked.clear()
    downloaded([url], storage_options=own)
    assert [asked.headers["Authorization"] for asked in web.asked] == ["Bearer own"]


def test_schemes_are_written_in_any_case(web: Web, bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"local")
    bucket.store.put("x", b"object")
    web.put("x.txt", b"web")
    url = f"HTTP{web.url.removeprefix('http')}/plain/x.txt?a=1"
    assert ps.File(url).name == "x.txt"
    assert ps.File(url).read() == b"web"
    paths = [url, f"S3://{bucket.name}/x", f"FILE://{tmp_path}/x"]
    assert downloaded(paths, storage_options=bucket.options) == [b"web", b"object", b"local"]


def test_unknown_options_are_refused_for_every_place(web: Web, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"local")
    url, path = web.put("x", b"web"), str(tmp_path / "x")
    for odd, near in (("header", "headers"), ("keyy", "key"), ("regoin", "region")):
        for build in (ps.col("p").download, lambda **options: ps.col("p").upload(path, **options)):
            with pytest.raises(InvalidArgumentError, match=f"'{odd}' is not known. Did you mean '{near}'"):
                build(storage_options={odd: "x"})
        for place in (url, path):
            with pytest.raises(InvalidArgumentError, match=f"'{odd}' is not known. Did you mean '{near}'"):
                ps.File(place, storage_options={odd: "x"}).read()
    for place in (url, path):  # near nothing: it may be for a store of fsspec's, but not for these
        refused(place, "'zzz' is not known", storage_options={"zzz": 1})
    assert downloaded([url, path], storage_options={"key": "k", "aws_region": "x", "headers": {}}) == [b"web", b"local"]
    with pytest.raises(InvalidArgumentError, match="headers takes a dict"):
        ps.File(url, storage_options={"headers": "Authorization: x"}).read()


# --- upload ---


def test_targets_from_the_data_are_held_to_the_settings(bucket: Bucket, tmp_path: Path) -> None:
    target = tmp_path / "there" / "x"
    for to in (str(target), f"file://{target}", f"local://{target}"):
        df = ps.from_pydict({"d": [b"1"], "to": [to]})
        with ps.config(allow_local_files=False):
            upload = ps.col("d").upload(ps.col("to"))
            with pytest.raises(UdfError, match="may not be written"):
                df.select(upload).to_pydict()
    assert not target.parent.exists()
    with ps.config(allow_local_files=False):
        df = ps.from_pydict({"d": [b"1"], "to": [f"{bucket.url}/x"]})
        assert df.select(ps.col("d").upload(ps.col("to"), storage_options=bucket.options)).to_pydict()
        df.select(ps.col("d").upload(str(target.parent))).to_pydict()  # a folder that the user names
    assert len(list(target.parent.iterdir())) == 1


def test_upload_to_a_bucket_that_is_not_there(bucket: Bucket) -> None:
    df = ps.from_pydict({"d": [b"1"]})
    with pytest.raises(UdfError, match="s3://no-such-bucket does not exist"):
        df.select(ps.col("d").upload("s3://no-such-bucket/x/", storage_options=bucket.options)).to_pydict()


def test_upload_to_a_folder_and_to_paths(bucket: Bucket, tmp_path: Path) -> None:
    df = ps.from_pydict({"d": [b"1", b"22", None], "to": [f"{tmp_path}/deep/{n}" for n in "abc"]})
    for folder, options in ((f"{tmp_path}/up", None), (f"{bucket.url}/up/", bucket.options)):
        paths = df.select(ps.col("d").upload(folder, storage_options=options)).to_pydict()["d"]
        assert paths[2] is None
        assert all(path.removeprefix("file://").startswith(folder) for path in paths[:2])
        assert downloaded(paths, storage_options=options) == [b"1", b"22", None]
    assert df.select(ps.col("d").upload(ps.col("to"))).to_pydict()["d"] == [
        f"file://{tmp_path}/deep/a",
        f"file://{tmp_path}/deep/b",
        None,
    ]
    assert (tmp_path / "deep" / "b").read_bytes() == b"22"
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["a", "b"]


def test_upload_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    df = ps.from_pydict({"d": ["text"]})
    for folder, reason in (("https://host/x", "use a local folder"), (f"{tmp_path}/file", "(?i)exists|directory")):
        with pytest.raises(UdfError, match=reason):
            df.select(ps.col("d").upload(folder)).collect()


def test_upload_makes_files_of_the_usual_mode_and_keeps_that_of_others(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "old").chmod(0o751)
    (tmp_path / "usual").touch()
    df = ps.from_pydict({"d": [b"1", b"2"], "to": [f"{tmp_path}/old", f"{tmp_path}/new"]})
    df.select(ps.col("d").upload(ps.col("to"))).collect()
    assert (tmp_path / "old").read_bytes() == b"1"
    assert (tmp_path / "old").stat().st_mode & 0o777 == 0o751
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old", "usual"]


def test_upload_to_a_folder_as_if_it_were_a_file(bucket: Bucket, tmp_path: Path) -> None:
    for target in (str(tmp_path), f"{tmp_path}/", f"{bucket.url}/folder/"):
        df = ps.from_pydict({"d": [b"1"], "to": [target]})
        with pytest.raises(UdfError, match=r"Cannot upload to .* it is a folder.*upload\('folder/'\)") as caught:
            df.select(ps.col("d").upload(ps.col("to"), storage_options=bucket.options)).collect()
        assert isinstance(caught.value.__cause__, WriteError)
    assert list(tmp_path.iterdir()) == []


def test_files_of_a_task_are_few() -> None:
    """Those of eight tasks are in memory at once."""
    plan = ps.from_pydict({"p": ["a"]}).select(ps.col("p").download(max_connections=4))._plan
    inboxes = [stage.inbox for stage in lower(optimize(plan), is_ordered=True)]
    assert [inbox.num_rows for inbox in inboxes if isinstance(inbox, AtMost)] == [6]
