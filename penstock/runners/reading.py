"""The options of a reader of a query's rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.plan.nodes import Plan


@dataclass(frozen=True, slots=True)
class Reading:
    """Options of a reader.

    With ``num_ahead`` the query runs on a thread of its own, that many batches ahead of the reader. With
    ``is_gradual`` the reader may stop at any row, so the query starts with few calls. With ``batch_rows`` the reader
    cuts what it gets into batches of that size: all but the last have a multiple of these rows. ``rules`` replace the
    optimizer's.
    """

    is_ordered: bool = True
    num_ahead: int = 0
    is_gradual: bool = False
    batch_rows: int | None = None
    rules: Sequence[Callable[[Plan], Plan]] | None = None


ALL_ROWS = Reading()
