"""PDFs to pages: their text, and what they look like, by PDFium.

PDFium keeps global state and may be used by one thread of a process at a time, so there is a lock around all of it;
``pdf_pages`` therefore runs in processes. Objects are closed before the lock is let go, never by the garbage collector.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.errors import CorruptFileError, MissingExtraError, ReadError
from penstock.media.opening import BY_SETTINGS, Reach, content_of, shown
from penstock.types import DataType

NDArray = np.ndarray[Any, Any]

PAGE = {"page_number": DataType.int64(), "text": DataType.string()}
PAGE_WITH_IMAGE = {**PAGE, "image": DataType.image("RGB")}

MAX_PAGE_PIXELS = 2**27
"""A page may say that it is miles wide; the image of one is at most 11585 pixels square."""
MAX_LIST_NBYTES = 2**30
"""Page images of one PDF as one value; ``read_pdf`` has no such bound."""
POINTS_PER_INCH = 72

_lock = threading.Lock()


def pages(
    source: Any,
    first: int | None = None,
    last: int | None = None,
    dpi: float | None = None,
    password: str | None = None,
    reach: Reach = BY_SETTINGS,
) -> list[dict[str, Any]] | None:
    """Return the pages from number ``first`` to ``last``, both included, as dicts; with ``dpi`` also as images."""
    if source is None:
        return None
    name = shown(source)
    with _open_document(source, name, password, reach) as document:
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
    source: Any, size: int, password: str | None = None, reach: Reach = BY_SETTINGS
) -> list[dict[str, int | None]]:
    """Return the pages of a PDF as ranges of at most ``size`` pages.

    What cannot be read is one range without bounds: whoever asks for its pages gets the error, once.
    """
    try:
        with _open_document(source, shown(source), password, reach) as document:
            count = len(document)
    except ReadError:
        return [{"first": None, "last": None}]
    return [{"first": first, "last": min(first + size - 1, count)} for first in range(1, count + 1, size)]


@contextmanager
def _open_document(source: Any, name: str, password: str | None, reach: Reach) -> Iterator[Any]:
    try:
        import pypdfium2
    except ImportError:
        raise MissingExtraError("pypdfium2", "pdf", "Reading PDFs") from None
    content = content_of(source, reach)  # here, so that nobody waits for a slow store with the lock held
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
    page = document[number - 1]
    try:
        found: dict[str, Any] = {"page_number": number, "text": _text(page)}
        if dpi is not None:
            found["image"] = _image(page, dpi, f"page {number} of {name}")
        return found
    finally:
        page.close()


def _text(page: Any) -> str:
    text_page = page.get_textpage()
    try:
        text: str = text_page.get_text_range()
    finally:
        text_page.close()
    # PDFium ends lines as DOS does, and marks a hyphen at the end of a line by a character that is none.
    return text.replace("\r\n", "\n").replace("\ufffe", "")


def _image(page: Any, dpi: float, where: str) -> NDArray:
    scale = dpi / POINTS_PER_INCH
    width, height = page.get_size()
    if width * scale * height * scale > MAX_PAGE_PIXELS:
        raise CorruptFileError(f"{where} would be {width * scale:.0f} by {height * scale:.0f} pixels; set a lower dpi.")
    bitmap = page.render(scale=scale, rev_byteorder=True)
    try:
        pixels: NDArray = bitmap.to_numpy()
        return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[:, :, :3].copy()
    finally:
        bitmap.close()
