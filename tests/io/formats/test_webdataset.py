"""WebDataset: a row a sample, decoded or not, from tar files good and bad."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import CorruptFileError, InvalidArgumentError, PathNotFoundError
from penstock.io.file_source import FileSource
from penstock.io.formats.webdataset import webdataset_format
from penstock.protocols import ReadRequest


def shard(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_samples_are_rows(tmp_path: Path) -> None:
    shard(tmp_path / "0.tar", {"a/1.txt": b"one", "a/1.cls": b"7", "a/1.jpg": b"\xff\xd8", "a/1.json": b'{"n": 1}'})
    shard(tmp_path / "1.tar", {"b/2.txt": b"two", "b/2.json": b'{"n": 2}', "b/2.extra": b"?"})
    found = ps.read_webdataset(tmp_path, include_paths=True)
    assert [str(field.dtype) for field in found.schema] == [
        "string",
        "string",
        "int64",
        "binary",
        "struct[n: int64]",
        "string",
    ]
    assert found.to_pylist() == [
        {
            "__key__": "a/1",
            "txt": "one",
            "cls": 7,
            "jpg": b"\xff\xd8",
            "json": {"n": 1},
            "path": str(tmp_path / "0.tar"),
        },
        {"__key__": "b/2", "txt": "two", "cls": None, "jpg": None, "json": {"n": 2}, "path": str(tmp_path / "1.tar")},
    ]
    assert found.select("cls").to_pydict() == {"cls": [7, None]}
    assert found.count_rows() == 2


def test_braces_stand_for_shards(tmp_path: Path) -> None:
    for number in range(13):
        shard(tmp_path / f"w-{number:03d}.tar", {f"{number}.txt": b"x"})
    keys = [str(number) for number in range(13)]
    assert ps.read_webdataset(f"{tmp_path}/w-{{000..012}}.tar").to_pydict()["__key__"] == keys
    assert ps.read_webdataset(tmp_path / "w-0{0..1}{0..1}.tar").to_pydict()["__key__"] == ["0", "1", "10", "11"]
    several = [f"{tmp_path}/w-{{000..001}}.tar", tmp_path / "w-012.tar"]
    assert ps.read_webdataset(several).to_pydict()["__key__"] == ["0", "1", "12"]
    with pytest.raises(PathNotFoundError, match=r"w-013\.tar"):
        ps.read_webdataset(f"{tmp_path}/w-{{000..013}}.tar")


def test_what_to_read_and_how(tmp_path: Path) -> None:
    path = shard(
        tmp_path / "0.tar", {"1.txt": b"one", "1.seg.png": b"..", "1.cls": b"7", "2.txt": b"two", "2.cls": b"8"}
    )
    raw = ps.read_webdataset(path, decoder=False, suffixes=[".txt", "cls"]).to_pylist()
    assert raw == [{"__key__": "1", "txt": b"one", "cls": b"7"}, {"__key__": "2", "txt": b"two", "cls": b"8"}]
    chosen = ps.read_webdataset(path, suffixes=["seg.png"]).to_pydict()
    assert chosen == {"__key__": ["1"], "seg.png": [b".."]}
    with pytest.raises(InvalidArgumentError, match=r"Use suffixes=\[\.\.\.\], which picks"):
        ps.read_webdataset(path, fileselect=["*.png"])  # type: ignore[call-arg]

    def shouting(sample: dict[str, Any]) -> dict[str, Any]:
        return {"text": sample["txt"].upper(), "number": sample["cls"] + 1}

    decoded = ps.read_webdataset(path, decoder=[True, shouting]).to_pydict()
    assert decoded == {"text": ["ONE", "TWO"], "number": [8, 9]}
    typed = ps.read_webdataset(path, schema={"cls": "float32", "npy": "binary"}).to_pydict()
    assert (typed["cls"], typed["npy"]) == ([7.0, 8.0], [None, None])


def test_compressed_shards_and_repeated_keys(tmp_path: Path) -> None:
    plain = shard(tmp_path / "0.tar", {"1.txt": b"one"})
    (tmp_path / "1.tar.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert ps.read_webdataset(tmp_path).to_pydict()["txt"] == ["one", "one"]
    with tarfile.open(tmp_path / "twice.tar", "w") as tar:
        for content in (b"a", b"b"):
            member = tarfile.TarInfo("same.txt")
            member.size = 1
            tar.addfile(member, io.BytesIO(content))
    assert ps.read_webdataset(tmp_path / "twice.tar").to_pydict() == {"__key__": ["same"] * 2, "txt": ["a", "b"]}


def test_names_that_point_elsewhere_do_no_harm(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "outside.txt"
    inside.mkdir()
    path = shard(inside / "0.tar", {"../outside.txt": b"1", f"{outside}": b"2"})
    with tarfile.open(path, "a") as tar:
        link = tarfile.TarInfo("3.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        hard = tarfile.TarInfo("4.txt")
        hard.type, hard.linkname = tarfile.LNKTYPE, "../outside.txt"
        tar.addfile(hard)
    assert ps.read_webdataset(path).to_pydict()["txt"] == ["1", "2"]  # links are skipped
    assert sorted(tmp_path.rglob("*")) == [inside, path]


def test_absurd_sizes_are_refused(tmp_path: Path) -> None:
    path = shard(tmp_path / "0.tar", {"1.txt": b"x" * 600, "1.md": b"y" * 600})
    assert ps.read_webdataset(path, max_sample_bytes=1200).count_rows() == 1
    with pytest.raises(CorruptFileError, match=r"sample '1' is 1200 bytes with '1.md'; raise max_sample_bytes=1000"):
        ps.read_webdataset(path, max_sample_bytes=1000)
    header = tarfile.TarInfo("1.bin")
    header.size = 2**62  # a header may claim anything
    (tmp_path / "claims.tar").write_bytes(header.tobuf() + b"abc")
    with pytest.raises(CorruptFileError, match="sample '1' is 4611686018427387904 bytes"):
        ps.read_webdataset(tmp_path / "claims.tar")
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2**40
    (tmp_path / "name.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + b"\0" * 4096)
    with pytest.raises(CorruptFileError, match="a header claims to be 1099511627776 bytes long"):
        ps.read_webdataset(tmp_path / "name.tar")


def test_bad_files_are_named(tmp_path: Path) -> None:
    good = shard(tmp_path / "0.tar", {"1.txt": b"one"})
    cut = shard(tmp_path / "1.tar", {"2.txt": b"t" * 5000, "3.txt": b"t"})
    cut.write_bytes(cut.read_bytes()[:2000])
    with pytest.raises(CorruptFileError, match=r"Cannot read '.*1\.tar'"):
        ps.read_webdataset([good, cut]).collect()
    assert ps.read_webdataset([good, cut], ignore_corrupt_files=True).to_pydict()["txt"] == ["one"]
    (tmp_path / "2.tar").write_bytes(b"this is no tar file" * 100)
    with pytest.raises(CorruptFileError, match=r"Cannot read '.*2\.tar'"):
        ps.read_webdataset(tmp_path / "2.tar")
    wrong = shard(tmp_path / "3.tar", {"1.cls": b"seven"})
    with pytest.raises(CorruptFileError, match=r"Cannot decode sample '1' of '.*3\.tar': invalid literal"):
        ps.read_webdataset(wrong)
    with pytest.raises(InvalidArgumentError, match="decoder='rgb' is not known"):
        ps.read_webdataset(good, decoder="rgb")


def damaged(data: bytes, start: int, content: bytes) -> bytes:
    return data[:start] + content + data[start + len(content) :]


@pytest.mark.one_machine
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[: 512 * 20], "truncated after 10240 bytes"),
        (lambda data: data[: 512 * 20 + 100], "no header at byte 10240: truncated header"),
        (lambda data: data[: 512 * 19 + 100], "unexpected end of data"),
        (lambda data: damaged(data, 512 * 20, b"Z" * 50), "no header at byte 10240: bad checksum"),
        (lambda data: damaged(data, 512 * 20, b"\0" * 512), "the block at byte 10240 is empty"),
    ],
)
def test_damage_is_not_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Any, message: str) -> None:
    whole = shard(tmp_path / "whole.tar", {f"{number:03d}.txt": b"x" for number in range(100)})
    bad = tmp_path / "bad.tar"
    bad.write_bytes(damage(whole.read_bytes()))
    with pytest.raises(CorruptFileError, match=message):
        ps.read_webdataset(bad).count_rows()
    good = shard(tmp_path / "good.tar", {"1.txt": b"one"})
    assert ps.read_webdataset([good, bad], ignore_corrupt_files=True).to_pydict()["txt"] == ["one"]
    assert "Skipped a corrupt file" in caplog.text


@pytest.mark.parametrize("end", [512 * 200 + 512, 512 * 200 + 1024, 512 * 200 + 600, None])
def test_archives_end_in_zeros(tmp_path: Path, end: int | None) -> None:
    path = shard(tmp_path / "0.tar", {f"{number:03d}.txt": b"x" for number in range(100)})
    path.write_bytes(path.read_bytes()[:end])
    assert ps.read_webdataset(path).count_rows() == 100
    shard(path, {})
    assert ps.read_webdataset([path, shard(tmp_path / "1.tar", {"a.txt": b"x"})]).count_rows() == 1


def test_samples_are_streamed(tmp_path: Path) -> None:
    path = shard(tmp_path / "0.tar", {f"{number}.bin": bytes(2**20) for number in range(40)})
    [task] = FileSource(webdataset_format(), path).read_tasks(ReadRequest())
    sizes = [batch.nbytes for batch in task.read()]
    assert len(sizes) > 1
    assert max(sizes) < 20 * 2**20
