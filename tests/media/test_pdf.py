"""PDFs to pages: text, images, page ranges, processes, and what is broken or locked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import CorruptFileError, InvalidArgumentError, MissingExtraError, ReadError, UdfError
from penstock.functions import chunk_text, pdf_pages
from penstock.media import pdf
from tests.media_files import locked_pdf_bytes, pdf_bytes, write_pdf

TEXTS = ["One.", "Two\nlines.", "Three."]


def pages_of(source: Any, **options: Any) -> Any:
    df = ps.from_pydict({"p": [source]}).select(pdf_pages(ps.col("p"), use_process=False, **options))
    return df.to_pydict()["p"][0]


def test_pages_and_their_text(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", TEXTS)
    expected = [{"page_number": number, "text": text} for number, text in enumerate(TEXTS, start=1)]
    assert pages_of(path) == expected
    assert pages_of(pdf_bytes(TEXTS)) == expected
    assert pages_of(ps.File(path)) == expected
    assert pages_of(None) is None


def test_a_range_of_pages() -> None:
    content = pdf_bytes(TEXTS)
    assert [page["page_number"] for page in pages_of(content, first=2)] == [2, 3]
    assert [page["page_number"] for page in pages_of(content, last=2)] == [1, 2]
    assert [page["page_number"] for page in pages_of(content, first=2, last=9)] == [2, 3]
    assert pages_of(content, first=4) == []


def test_pages_as_images() -> None:
    page = pages_of(pdf_bytes(["Dark on light."], page_size=(144, 72)), images=True, dpi=100)[0]
    image = page["image"]
    assert image.shape == (100, 200, 3)
    assert image.dtype == np.uint8
    assert image.max() == 255
    assert image.min() < 100
    assert page["text"] == "Dark on light."


def test_worker_processes_give_the_same(tmp_path: Path) -> None:
    for number in range(6):
        write_pdf(tmp_path / f"{number}.pdf", [f"Page {page} of {number}." for page in range(1, number + 2)])
    (tmp_path / "bad.pdf").write_bytes(b"%PDF-1.4 and no more")
    df = ps.read_pdf(tmp_path, on_error="null").collect()
    rows = df.to_pylist()
    here = ps.read_pdf(tmp_path, on_error="null", use_process=False).to_pylist()
    assert rows == here
    assert [row["text"] for row in rows if row["path"].endswith("2.pdf")] == [
        f"Page {page} of 2." for page in (1, 2, 3)
    ]
    assert [row for row in rows if row["path"].endswith("bad.pdf")] == [
        {"path": str(tmp_path / "bad.pdf"), "page_number": None, "text": None}
    ]
    errors = df.errors().to_pydict()
    assert errors["error_type"] == ["CorruptFileError"]
    assert "bad.pdf" in errors["message"][0]


def test_reading_images_goes_by_ranges_of_pages(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "long.pdf", [f"Page {number}." for number in range(1, 11)])
    rows = ps.read_pdf(path, images=True, dpi=36, use_process=False).to_pylist()
    assert [row["page_number"] for row in rows] == list(range(1, 11))
    assert [row["text"] for row in rows] == [f"Page {number}." for number in range(1, 11)]
    assert {row["image"].shape for row in rows} == {(50, 100, 3)}
    assert pdf.page_ranges(path, 4) == [
        {"first": 1, "last": 4},
        {"first": 5, "last": 8},
        {"first": 9, "last": 10},
    ]


def test_a_broken_pdf_among_images_is_one_error(booklet: str) -> None:
    (Path(booklet).parent / "bad.pdf").write_bytes(b"no PDF")
    df = ps.read_pdf(Path(booklet).parent, images=True, dpi=10, on_error="null", use_process=False).collect()
    assert df.to_pydict()["page_number"] == [None, 1, 2]
    assert df.errors().count_rows() == 1
    with pytest.raises(UdfError, match=r"bad\.pdf"):
        ps.read_pdf(Path(booklet).parent, images=True, dpi=10, use_process=False).collect()


def test_threads_take_turns() -> None:
    """PDFium crashes, or worse, when two threads are in it; here eight ask at once."""
    contents = [pdf_bytes([f"Page {page} of {number}." for page in range(20)]) for number in range(16)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda content: pdf.pages(content, dpi=20), contents))
    for number, pages in enumerate(found):
        assert [page["text"] for page in pages or []] == [f"Page {page} of {number}." for page in range(20)]


def test_a_broken_pdf_is_the_error_of_its_row(booklet: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"not a PDF")
    df = ps.from_pydict({"p": [booklet, str(broken)]})
    with pytest.raises(UdfError, match=r"Cannot read .*broken\.pdf' as a PDF"):
        df.select(pdf_pages(ps.col("p"), use_process=False)).collect()
    done = df.select(pdf_pages(ps.col("p"), use_process=False, on_error="null")).collect()
    assert [found is None for found in done.to_pydict()["p"]] == [False, True]
    assert done.errors().count_rows() == 1


def test_a_locked_pdf_needs_its_password(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "locked.pdf"
    path.write_bytes(locked_pdf_bytes("Locked.", "secret"))
    with pytest.raises(CorruptFileError, match=r"is encrypted; give password="):
        pdf.pages(path)
    with pytest.raises(CorruptFileError, match=r"the password given is not the right one"):
        pdf.pages(path, password="guess")
    df = ps.from_pydict({"p": [str(path)]}).select(pdf_pages(ps.col("p"), password="secret", use_process=False))
    assert df.to_pydict()["p"][0] == [{"page_number": 1, "text": "Locked."}]
    df.explain()
    assert "secret" not in capsys.readouterr().out


def test_absurd_pages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CorruptFileError, match=r"page 1 of a file of \d+ bytes would be"):
        pdf.pages(pdf_bytes(["Wide."], page_size=(14_000, 14_000)), dpi=2000)
    monkeypatch.setattr(pdf, "MAX_LIST_NBYTES", 100)
    with pytest.raises(ReadError, match="read_pdf, which streams"):
        pdf.pages(pdf_bytes(["a"]), dpi=72)
    with pytest.raises(InvalidArgumentError, match="dpi=0"):
        pdf_pages(ps.col("p"), images=True, dpi=0)


def test_a_missing_extra_names_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pypdfium2", None)
    with pytest.raises(MissingExtraError, match=r'pip install "penstock\[pdf\]"'):
        pdf_pages(ps.col("p"))


def test_pages_to_overlapping_chunks(tmp_path: Path) -> None:
    """The pipeline that documents are embedded with."""
    write_pdf(tmp_path / "a.pdf", ["abcdefgh", "ij"])
    df = ps.read_pdf(tmp_path, use_process=False)
    df = df.select("page_number", chunk_text(ps.col("text"), 4, 1).explode().alias("chunk"))
    assert df.to_pydict() == {"page_number": [1, 1, 1, 2], "chunk": ["abcd", "defg", "gh", "ij"]}


@pytest.mark.parametrize("use_process", [False, True], ids=["here", "in a process"])
def test_what_the_settings_forbid_stays_closed(booklet: str, use_process: bool) -> None:
    """A worker process has settings of its own; those of the user's process must reach it."""
    with ps.config(allow_local_files=False):
        df = ps.from_pydict({"p": [booklet]}).select(pdf_pages(ps.col("p"), use_process=use_process, on_error="null"))
        done = df.collect()
        assert done.to_pydict() == {"p": [None]}
        assert done.errors().to_pydict()["error_type"] == ["ForbiddenUrlError"]
        assert ps.read_pdf(booklet, use_process=use_process).count_rows() == 2  # this path is the user's own
