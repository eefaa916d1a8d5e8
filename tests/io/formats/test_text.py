"""Text: lines, whole files, encodings."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import CorruptFileError, InvalidArgumentError
from penstock.io.file_source import FileSource
from penstock.io.formats import lines
from penstock.io.formats.text import TextFormat
from tests.io.helpers import read_table


def read(tmp_path: Path, content: str | bytes, **options: Any) -> list[str]:
    path = tmp_path / "x.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    texts: list[str] = read_table(FileSource(TextFormat(**options), path)).column("text").to_pylist()
    return texts


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\nb\n", ["a", "b"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\n\n  \nb", ["a", "b"]),
        ("\ufeffa, 'b' \"c\"\td\n", ["a, 'b' \"c\"\td"]),
        ("né\u2028x\x0cy\n", ["né\u2028x\x0cy"]),
    ],
)
def test_one_row_a_line(tmp_path: Path, content: str, expected: list[str]) -> None:
    assert read(tmp_path, content) == expected


def test_blank_lines_can_be_kept(tmp_path: Path) -> None:
    assert read(tmp_path, "a\n\n\nb\n\n", skip_blank_lines=False) == ["a", "", "", "b", ""]


def test_one_row_a_file(tmp_path: Path) -> None:
    assert read(tmp_path, "a\n\nb\n", whole_text=True) == ["a\n\nb\n"]
    assert read(tmp_path, " \n", whole_text=True) == []
    assert read(tmp_path, "", whole_text=True, skip_blank_lines=False) == [""]


def test_lines_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BLOCK_NBYTES", 16)
    texts = [str(number) * (number % 30 + 1) for number in range(200)]
    assert read(tmp_path, "\n".join(texts)) == texts
    assert read(tmp_path, "\n".join(texts).encode("utf-16"), encoding="utf-16") == texts


def test_other_encodings(tmp_path: Path) -> None:
    assert read(tmp_path, "é\n".encode("latin-1"), encoding="latin-1") == ["é"]
    with pytest.raises(InvalidArgumentError, match="encoding='klingon' is not known"):
        TextFormat(encoding="klingon")


def test_compressed_files(tmp_path: Path) -> None:
    (tmp_path / "x.txt.gz").write_bytes(gzip.compress(b"a\nb\n"))
    assert read_table(FileSource(TextFormat(), tmp_path)).column("text").to_pylist() == ["a", "b"]


@pytest.mark.parametrize("whole_text", [False, True])
def test_what_is_not_utf8_names_file_and_line(tmp_path: Path, whole_text: bool) -> None:
    with pytest.raises(CorruptFileError, match=r"Cannot read '.*/x\.txt', line 3: byte 0xff is not UTF-8 text"):
        read(tmp_path, b"a\nb\nc\xffd\n", whole_text=whole_text)


def test_what_is_not_the_encoding_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match=r"x\.txt"):
        read(tmp_path, b"a", encoding="utf-16")
