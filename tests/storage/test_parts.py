"""The small parts of the storage layer, by themselves."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from contextlib import nullcontext

import pytest
from hypothesis import given, strategies as st

from penstock.config import config
from penstock.errors import ForbiddenUrlError, ReadError
from penstock.storage.access import Access, access_from, access_inside_values, is_private
from penstock.storage.download_limits import ByteBudget, DownloadLimits
from penstock.storage.mime import sniff
from penstock.storage.remote_file import RangeFile, Version, buffered, merged_ranges
from penstock.storage.storage_options import StorageOptions, client_arguments, scrubbed, secrets_of
from penstock.storage.stores import object_store
from penstock.storage.urls import local_path, redacted


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("8.8.8.8", False),
        ("2606:4700::1111", False),
        ("127.0.0.1", True),
        ("10.0.0.1", True),
        ("172.16.5.4", True),
        ("192.168.1.1", True),
        ("169.254.169.254", True),
        ("100.64.0.1", True),
        ("0.0.0.0", True),
        ("224.0.0.1", True),
        ("::1", True),
        ("fe80::1%eth0", True),
        ("fd00::1", True),
        ("::ffff:10.0.0.1", True),
        ("64:ff9b::7f00:1", True),
        ("2002:7f00:1::", True),
    ],
)
def test_private_addresses(address: str, expected: bool) -> None:
    assert is_private(address) is expected


def test_access_to_addresses() -> None:
    Access().check_address("127.0.0.1", "http://localhost")
    with pytest.raises(ForbiddenUrlError, match="http://localhost"):
        access_from("public").check_address("127.0.0.1", "http://localhost")


@pytest.mark.parametrize("is_allowed", [False, True])
def test_access_of_urls_inside_values(is_allowed: bool) -> None:
    with config(**({"allow_private_urls": True} if is_allowed else {})):
        access = access_inside_values(1)
    for url in ("https://example.com/x", "s3://bucket/x", "hf://datasets/a/b/x"):
        access.check(url)
    for path in ("/etc/passwd", "file:///etc/passwd", "ftp://example.com/x"):
        with pytest.raises(ForbiddenUrlError):
            access.check(path)
    with nullcontext() if is_allowed else pytest.raises(ForbiddenUrlError, match="must be https"):
        access.check("http://example.com/x")  # HttpClient checks each redirect, and each address it connects to
    with nullcontext() if is_allowed else pytest.raises(ForbiddenUrlError, match="private address 169"):
        access.check_address("169.254.169.254", "https://example.com/x")


@given(st.lists(st.integers(0, 30), max_size=30), st.integers(1, 40))
def test_a_budget_is_kept_and_serves_all(sizes: list[int], limit: int) -> None:
    async def run() -> None:
        budget = ByteBudget(limit)

        async def use(nbytes: int) -> None:
            async with DownloadLimits(budget).admitted(nbytes, "x"):
                assert budget.in_use <= max(limit, *sizes)
                await asyncio.sleep(0)

        await asyncio.gather(*map(use, sizes))
        assert budget.in_use == 0

    asyncio.run(run())


def test_a_budget_survives_cancelled_waiters() -> None:
    async def run() -> None:
        budget = ByteBudget(10)
        await budget.acquire(10)
        waiting = [asyncio.create_task(budget.acquire(5)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        budget.release(10)
        await asyncio.gather(*waiting, return_exceptions=True)
        assert budget.in_use == 10

    asyncio.run(run())


def test_a_limit_names_the_file() -> None:
    with pytest.raises(ReadError, match=r"'x'.*max_bytes=5"):
        DownloadLimits(max_bytes=5).check(6, "x")


@given(st.binary(max_size=200), st.lists(st.tuples(st.integers(0, 210), st.integers(0, 50)), max_size=8), st.booleans())
def test_a_range_file_is_like_any_file(content: bytes, reads: list[tuple[int, int]], is_prefetched: bool) -> None:
    def read_ranges(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [content[start:end] for start, end in ranges]

    raw = RangeFile(len(content), read_ranges)
    if is_prefetched:
        raw.prefetch([(0, len(content) // 2), (len(content) // 2, len(content))])
    for file in (raw, buffered(len(content), read_ranges, 16)):
        plain = io.BytesIO(content)
        for position, nbytes in reads:
            file.seek(position)
            plain.seek(position)
            assert file.read(nbytes) == plain.read(nbytes)
            assert file.tell() == plain.tell()
        file.seek(0)
        assert file.read() == content


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav"),
        (b"\0\0\0\x20ftypisom", "video/mp4"),
        (b"\0\0\0\x20ftypM4A ", "audio/mp4"),
        (b"\0\0\0\x20ftypqt  ", "video/quicktime"),
        (b"\xff\xfb\x90\x00", "audio/mpeg"),
        (b"\x1aE\xdf\xa3....webm", "video/webm"),
        (b"<!DOCTYPE html><html>", "text/html"),
        (b"<?xml version='1.0'?><svg/>", "image/svg+xml"),
        (b"<?xml version='1.0'?><a/>", "application/xml"),
        (b"PK\3\4", "application/zip"),
        (b"\0" * 257 + b"ustar", "application/x-tar"),
        (b"PAR1", "application/vnd.apache.parquet"),
        (b"plain text", None),
        (b"", None),
    ],
)
def test_content_tells_the_kind(head: bytes, expected: str | None) -> None:
    assert sniff(head) == expected


def test_options_translate_and_hide() -> None:
    options = {"key": "AKIA12", "secret": "hush-hush", "anon": False, "timeout": "5s", "region": "eu", "token": None}
    arguments = client_arguments("s3", options)
    assert arguments["config"] == {
        "access_key_id": "AKIA12",
        "secret_access_key": "hush-hush",
        "skip_signature": False,
        "region": "eu",
    }
    assert arguments["client_options"] == {"timeout": "5s"}
    assert "hush" not in repr(StorageOptions(options)) + str(StorageOptions(options)) + f"{StorageOptions(options)}"
    assert scrubbed("key AKIA12 of hush-hush", secrets_of(options)) == "key *** of ***"


def test_urls() -> None:
    assert local_path("file:///a%20b") == "/a b"
    assert local_path("file://localhost/a") == "/a"
    assert local_path("https://h/a") is None
    assert redacted("postgresql://me:pw@host/db") == "postgresql://***@host/db"
    assert redacted("abfss://box@me.dfs.core.windows.net/x") == "abfss://box@me.dfs.core.windows.net/x"
    assert redacted("az://c/x?sig=abc&se=1 and /plain/path") == "az://c/x?sig=***&se=1 and /plain/path"


def test_parts_that_lie_close_together_are_read_by_one_request(quick_endpoint: str) -> None:
    store = object_store("s3", "parts", {"key": "k", "secret": "s", "endpoint_url": quick_endpoint})
    content = bytes(range(256)) * 20_000
    store.put("x", content)
    ranges = [(0, 10), (5, 600), (2_000_000, 2_000_100), (5_000_000, 5_000_001)]
    assert merged_ranges(ranges, 2**20) == [(0, 600), (2_000_000, 2_000_100), (5_000_000, 5_000_001)]
    with store.open_ranges("x") as file:
        file.prefetch(ranges)
        for start, end in ranges:
            file.seek(start)
            assert file.read(end - start) == content[start:end]


def test_versions_compare_what_both_answers_state() -> None:
    known = Version(5, 'W/"a"', "monday")
    assert not known.differs(Version(5, '"a"', "tuesday"))
    assert not known.differs(Version())
    for other in (Version(6, '"a"'), Version(5, '"b"', "monday"), Version(None, None, "tuesday")):
        assert known.differs(other)
        with pytest.raises(ReadError, match="'x' changed while it was read"):
            known.checked(other, "x")
    assert Version(5).checked(Version(None, '"a"'), "x") == Version(5, '"a"')
