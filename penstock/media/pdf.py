"""Extract the text and the images of PDF pages with PDFium.

PDFium has global state and allows one thread of a process at a time. So a lock surrounds every use, and ``pdf_pages``
runs in several processes. Objects are closed before the lock is released, never by the garbage collector.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np

from penstock.errors import CorruptFileError, ReadError, load_extra
from penstock.media.sources import CONFIGURED_ACCESS, SourceAccess, describe_source, read_source
from penstock.types import DataType
from penstock.types.ndarrays import NDArray

PAGE = {"page_number": DataType.int64(), "text": DataType.string()}
PAGE_WITH_IMAGE = {**PAGE, "image": DataType.image("RGB")}

MAX_PAGE_PIXELS = 2**27
"""The maximum pixels of a page image, 11585 squared; a page may state any size."""
MAX_LIST_NBYTES = 2**30
"""The maximum bytes of page images where one value holds the whole PDF; ``read_pdf`` has no such limit."""
POINTS_PER_INCH = 72

_lock = threading.Lock()


def pages(
    source: Any,
    first: int | None = None,
    last: int | None = None,
    dpi: float | None = None,
    password: str | None = None,
    access: SourceAccess = CONFIGURED_ACCESS,
) -> list[dict[str, Any]] | None:
    """Return the pages ``first`` to ``last``, both included, as dicts; with ``dpi`` they have images."""
    if source is None:
        return None
    name = describe_source(source)
    with _open_document(source, name, password, access) as document:
        numbers = range(max(first or 1, 1), min(last or len(document), len(document)) + 1)
        found: list[dict[str, Any]] = []
        nbytes = 0
        for number in numbers:
            found.append(_page(document, number, dpi, name))
            nbytes += found[-1]["image"].nbytes if dpi is not None else 0
            if nbytes > MAX_LIST_NBYTES:
                raise ReadError(
                    f"The page images of {name} take more than {MAX_LIST_NBYTES} bytes, too much for one value; "
                    "set a lower dpi, or use read_pdf, which streams."
                )
        return found


def page_ranges(
    source: Any, size: int, password: str | None = None, access: SourceAccess = CONFIGURED_ACCESS
) -> list[dict[str, int | None]]:
    """Return the pages of a PDF as ranges of at most ``size`` pages.

    An unreadable file gets one range without bounds, so that reading its pages raises the error once.
    """
    try:
        with _open_document(source, describe_source(source), password, access) as document:
            count = len(document)
    except ReadError:
        return [{"first": None, "last": None}]
    return [{"first": first, "last": min(first + size - 1, count)} for first in range(1, count + 1, size)]


@contextmanager
def _open_document(source: Any, name: str, password: str | None, access: SourceAccess) -> Iterator[Any]:
    pypdfium2 = load_extra("pypdfium2", "pdf", "Reading PDFs")
    content = read_source(source, access)  # before the lock, as the store may be slow
    with _lock:
        try:
            document = pypdfium2.PdfDocument(content, password=password)
        except pypdfium2.PdfiumError as exc:
            raise CorruptFileError(_refusal(name, str(exc), password)) from exc
        try:
            yield document
        except pypdfium2.PdfiumError as exc:
            raise CorruptFileError(f"Cannot read {name} to its end: {exc}") from exc
        finally:
            document.close()


def _refusal(name: str, reason: str, password: str | None) -> str:
    if "password" not in reason.lower():
        return f"Cannot read {name} as a PDF: {reason}"
    remedy = "give password=..." if password is None else "the password given is not the right one."
    return f"{name} is encrypted; {remedy}"


def _page(document: Any, number: int, dpi: float | None, name: str) -> dict[str, Any]:
    with closing(document[number - 1]) as page, closing(page.get_textpage()) as text_page:
        # PDFium ends lines with CRLF, and marks a hyphen at the end of a line with a noncharacter.
        text = text_page.get_text_range().replace("\r\n", "\n").replace("\ufffe", "")
        found: dict[str, Any] = {"page_number": number, "text": text}
        if dpi is not None:
            found["image"] = _image(page, dpi, f"page {number} of {name}")
        return found


def _image(page: Any, dpi: float, where: str) -> NDArray:
    scale = dpi / POINTS_PER_INCH
    width, height = page.get_size()
    if width * scale * height * scale > MAX_PAGE_PIXELS:
        raise CorruptFileError(f"{where} would be {width * scale:.0f} by {height * scale:.0f} pixels; set a lower dpi.")
    with closing(page.render(scale=scale, rev_byteorder=True)) as bitmap:
        pixels: NDArray = bitmap.to_numpy()
        return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[:, :, :3].copy()
