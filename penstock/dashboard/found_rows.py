"""Rows that were found for a page: the request, the rows, and their JSON values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.dashboard.cells import ALONE, IN_TABLE, CellLimits, cells_of
from penstock.dashboard.prompts import PromptTemplate
from penstock.errors import PenstockError
from penstock.events.events import RowError
from penstock.protocols import Ledger
from penstock.types import Schema
from penstock.types.row_numbers import RowPlace

PAGE_ROWS = 25
OpenLedger = Callable[[], Ledger | None]  # the ledger with the answers of the calls
EMPTY_PAGE: dict[str, Any] = {
    "num_rows": 0,
    "num_found": 0,  # rows that match, if the person asked for some only
    "is_counted": True,  # else at least so many match
    "next": None,
    "columns": [],
    "rows": [],
    "keys": [],
    "key": "",
    "only_here": [],  # columns that the other job lacks
    "only_there": [],
    "formulas": {},
}


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """A page that a person asks for, starting at row ``first`` of all rows."""

    first: int = 0
    search: str = ""
    is_failed: bool = False
    is_different: bool = False
    key: str = ""
    is_alone: bool = False  # one row, with all its text

    @property
    def is_filtered(self) -> bool:
        return bool(self.search) or self.is_failed or self.is_different

    @property
    def limits(self) -> CellLimits:
        return ALONE if self.is_alone else IN_TABLE

    @property
    def num_rows(self) -> int:
        return 1 if self.is_alone else PAGE_ROWS

    @staticmethod
    def of(asked: Mapping[str, str]) -> RowsRequest:
        return RowsRequest(
            max(int(asked.get("first") or 0), 0),
            asked.get("search", "")[:1000],
            asked.get("failed") == "1",
            asked.get("different") == "1",
            asked.get("key", ""),
            asked.get("alone") == "1",
        )


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows of one batch that match, with their numbers among all rows. The next batch starts at row ``end``.

    ``places`` are the rows of the input that they were made from, None where that is not known.
    """

    batch: pa.RecordBatch
    numbers: list[int]
    errors: list[RowError | None]
    places: list[RowPlace | None]
    end: int

    def take(self, kept: Sequence[int]) -> FoundRows:
        numbers, errors = [self.numbers[row] for row in kept], [self.errors[row] for row in kept]
        places = [self.places[row] for row in kept]
        return FoundRows(self.batch.take(pa.array(kept, pa.int64())), numbers, errors, places, self.end)


def place_of(error: RowError | None) -> RowPlace | None:
    """Return the row of a recorded failure, None if it is not known."""
    return None if error is None or error.row is None or error.source is None else RowPlace(error.source, error.row)


def joined(pieces: Sequence[FoundRows]) -> FoundRows:
    """Join the rows of several batches."""
    return FoundRows(
        pa.Table.from_batches([piece.batch for piece in pieces]).combine_chunks().to_batches()[0],
        [number for piece in pieces for number in piece.numbers],
        [error for piece in pieces for error in piece.errors],
        [place for piece in pieces for place in piece.places],
        pieces[-1].end,
    )


def shown_rows(
    found: FoundRows, asked: RowsRequest, prompts: Mapping[str, PromptTemplate], open_ledger: OpenLedger
) -> dict[str, Any]:
    """Return rows as JSON values.

    A single row also has the messages and the usage of its prompts, by the column of their answers.
    """
    columns = [cells_of(column, asked.limits) for column in found.batch.columns]
    rows: list[dict[str, Any]] = [
        {
            "number": number,
            "row": None if place is None else place.number,
            "source": None if place is None else place.input,
            "cells": list(cells),
            "error": asdict(error) if error else None,
            "other": None,
        }
        for number, error, place, cells in zip(
            found.numbers, found.errors, found.places, zip(*columns, strict=True), strict=True
        )
    ]
    if asked.is_alone and rows:
        row = found.batch.slice(0, 1)
        sent = {name: template.messages(row, ALONE) for name, template in prompts.items()}
        rows[0]["prompts"] = {name: messages for name, messages in sent.items() if messages}
        rows[0]["usage"] = _usage(row, prompts, open_ledger)
    described = [{"name": each.name, "type": str(each.dtype)} for each in Schema.from_arrow(found.batch.schema)]
    return EMPTY_PAGE | {"columns": described, "rows": rows}


def _usage(
    row: pa.RecordBatch, prompts: Mapping[str, PromptTemplate], open_ledger: OpenLedger
) -> dict[str, dict[str, Any]]:
    try:
        ledger = open_ledger() if prompts else None
    except PenstockError:  # its files cannot be read
        return {}
    if ledger is None:
        return {}
    with closing(ledger):
        found = {name: template.usage(row, name, ledger) for name, template in prompts.items()}
    return {name: usage for name, usage in found.items() if usage is not None}


def contains_text(batch: pa.RecordBatch, text: str) -> pa.Array:
    """Return whether a text or number anywhere in a row contains ``text``, in any case.

    >>> batch = pa.RecordBatch.from_pydict({"a": ["Red", None], "b": [{"c": ["x"]}, {"c": ["dark RED"]}]})
    >>> contains_text(batch, "red").to_pylist(), contains_text(batch, "dark").to_pylist()
    ([True, True], [False, True])
    """
    found = pa.array([False] * batch.num_rows)
    for column in batch.columns:
        found = pc.or_(found, pc.fill_null(_contains(column, text), False))
    return found


def _contains(array: pa.Array, text: str) -> pa.Array:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.nulls(len(array), pa.bool_())
    if pa.types.is_struct(kind):
        found = pa.nulls(len(array), pa.bool_())
        for part in array.flatten():
            found = pc.or_kleene(found, _contains(part, text))
        return found
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parents = pc.list_parent_indices(array).filter(pc.fill_null(_contains(array.flatten(), text), False))
        return pc.is_in(pa.array(range(len(array)), pa.int64()), pc.cast(parents, pa.int64()))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.match_substring(array, text, ignore_case=True)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return pc.match_substring(pc.cast(array, pa.string()), text, ignore_case=True)
    return pa.nulls(len(array), pa.bool_())
