"""Pages of PDFs."""

from __future__ import annotations

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, method
from penstock.functions.calls import MediaOnError, media_call
from penstock.media import pdf
from penstock.media.opening import Reach, require
from penstock.types import DataType

__all__ = ["pdf_pages"]

FILES_PER_TASK = 4
MAX_DPI = 2400


@method
def pdf_pages(
    file_expr: Expression,
    *,
    images: bool = False,
    dpi: float = 150,
    first: int | Expression | None = None,
    last: int | Expression | None = None,
    password: str | None = None,
    on_error: MediaOnError = "raise",
    use_process: bool = True,
) -> Expression:
    """Extract the pages of PDFs as lists of structs: ``page_number``, ``text`` and, with ``images``, ``image``.

    The column holds files, paths or bytes. Page numbers start at 1; ``first`` and ``last`` are both included. Images
    are RGB, with ``dpi`` pixels for each inch of the page. An encrypted PDF needs ``password``.

    PDFium allows one thread in a process, so the pages are extracted in one worker process for each core, and a PDF
    that crashes its worker is one failed row. ``use_process=False`` uses this process, one PDF at a time.

    >>> path = getfixture("booklet")  # a PDF of two pages
    >>> df = ps.from_pydict({"p": [path]}).select(pdf_pages(ps.col("p"), use_process=False).explode())
    >>> df.select(ps.col("p").unnest()).to_pydict()
    {'page_number': [1, 2], 'text': ['The first page.', 'The second page.']}
    """
    require("pypdfium2", "pdf", "pdf_pages")
    return pages_call(
        file_expr,
        images=images,
        dpi=dpi,
        first=first,
        last=last,
        password=password,
        on_error=on_error,
        use_process=use_process,
    )


def pages_call(
    file_expr: Expression,
    *,
    images: bool,
    dpi: float,
    password: str | None,
    on_error: MediaOnError,
    use_process: bool,
    reach: Reach | None = None,
    first: int | Expression | None = None,
    last: int | Expression | None = None,
) -> Expression:
    """Return the call behind ``pdf_pages``; ``reach`` says which files the paths of the column may name."""
    if images and not 1 <= dpi <= MAX_DPI:
        raise InvalidArgumentError(f"pdf_pages: dpi={dpi!r} must lie between 1 and {MAX_DPI}")
    return media_call(
        "pdf_pages",
        pdf.pages,
        DataType.list(DataType.struct(pdf.PAGE_WITH_IMAGE if images else pdf.PAGE)),
        file_expr,
        on_error,
        batch_size=1 if images else FILES_PER_TASK,
        use_process=use_process or None,
        reach=reach,
        password=password,
        first=first,
        last=last,
        dpi=dpi if images else None,
    )


def page_ranges(
    file_expr: Expression,
    size: int,
    *,
    password: str | None,
    on_error: MediaOnError,
    use_process: bool,
    reach: Reach,
) -> Expression:
    """Return the pages of PDFs as lists of structs ``first`` and ``last``: ranges of at most ``size`` pages."""
    return media_call(
        "page_ranges",
        pdf.page_ranges,
        DataType.list(DataType.struct({"first": DataType.int64(), "last": DataType.int64()})),
        file_expr,
        on_error,
        FILES_PER_TASK,
        use_process=use_process or None,
        reach=reach,
        password=password,
        size=size,
    )
