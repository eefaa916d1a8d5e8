"""PDFs to pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, method
from penstock.functions.builtin import MediaOnError, builtin_call
from penstock.media import pdf
from penstock.media.opening import require
from penstock.types import DataType

FILES_PER_TASK = 4


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
    storage_options: Mapping[str, Any] | None = None,
) -> Expression:
    """Take the pages out of PDFs: lists of structs of ``page_number``, from 1, ``text`` and, if asked for, ``image``.

    The column holds files, paths or bytes. ``first`` and ``last`` are page numbers, both included. The images are RGB,
    ``dpi`` pixels for each inch of the page. An encrypted PDF needs ``password``; ``storage_options`` are as in
    ``read_parquet``.

    PDFium, which reads them, allows one thread in a process. So this runs in worker processes, as many as there are
    cores, and a PDF that crashes one is that row's error; with ``use_process=False`` it runs here, one PDF at a time.

    >>> path = getfixture("booklet")  # a PDF of two pages
    >>> df = ps.from_pydict({"p": [path]}).select(pdf_pages(ps.col("p"), use_process=False).explode())
    >>> df.select(ps.col("p").unnest()).to_pydict()
    {'page_number': [1, 2], 'text': ['The first page.', 'The second page.']}
    """
    require("pypdfium2", "pdf", "pdf_pages")
    if images and not 1 <= dpi <= 2400:
        raise InvalidArgumentError(f"pdf_pages: dpi={dpi!r} must lie between 1 and 2400")
    return builtin_call(
        "pdf_pages",
        pdf.pages,
        DataType.list(DataType.struct(pdf.PAGE_WITH_IMAGE if images else pdf.PAGE)),
        file_expr,
        on_error=on_error,
        batch_size=1 if images else FILES_PER_TASK,
        use_process=use_process or None,
        first=first,
        last=last,
        dpi=dpi if images else None,
        secrets={"password": password, "storage_options": storage_options},
    )


def page_ranges(
    file_expr: Expression,
    size: int,
    *,
    password: str | None,
    on_error: MediaOnError,
    use_process: bool,
    storage_options: Mapping[str, Any] | None,
) -> Expression:
    """Return the pages of PDFs as lists of structs ``first`` and ``last``: ranges of at most ``size`` pages."""
    return builtin_call(
        "page_ranges",
        pdf.page_ranges,
        DataType.list(DataType.struct({"first": DataType.int64(), "last": DataType.int64()})),
        file_expr,
        on_error=on_error,
        batch_size=FILES_PER_TASK,
        use_process=use_process or None,
        size=size,
        secrets={"password": password, "storage_options": storage_options},
    )
