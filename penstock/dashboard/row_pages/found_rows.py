"""Rows that were found for a page: the request, the rows, and their JSON values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from penstock.dashboard.row_pages.cells import ALONE, IN_TABLE, CellLimits, cells_of
from penstock.dashboard.row_pages.facets import RowFilter, facets_of
from penstock.dashboard.row_pages.prompts import PromptTemplate
from penstock.errors import InvalidArgumentError, PenstockError
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
    "next": None,  # where the next page starts
    "before": None,  # of a row alone: the numbers of the rows before and after it
    "after": None,
    "facets": [],
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
    """The rows that a person asks for: a page from match number ``first`` on, or with ``is_alone`` that one row."""

    first: int = 0
    search: str = ""
    status: str = ""  # or "answered" or "failed"
    error: str = ""  # the kind of the error that rows failed with
    conditions: tuple[RowFilter, ...] = ()
    sort: str = ""  # a facet
    is_descending: bool = False
    is_different: bool = False
    key: str = ""
    is_alone: bool = False  # one row, with all its text
    jump: int | None = None  # the number in the input of the row alone

    @property
    def is_filtered(self) -> bool:
        """True if the request filters or sorts the rows of the output."""
        return bool(self.search or self.conditions or self.sort or self.status or self.error) or self.is_different

    @property
    def limits(self) -> CellLimits:
        return ALONE if self.is_alone else IN_TABLE

    @staticmethod
    def of(asked: Mapping[str, str]) -> RowsRequest:
        return RowsRequest(
            max(int(asked.get("first") or 0), 0),
            asked.get("search", "")[:1000],
            asked.get("status", ""),
            asked.get("error", ""),
            RowFilter.all_of(asked.get("where") or "[]"),
            asked.get("sort", ""),
            asked.get("desc") == "1",
            asked.get("different") == "1",
            asked.get("key", ""),
            asked.get("alone") == "1",
            _row_number(asked["jump"]) if asked.get("jump") else None,
        )


def _row_number(typed: str) -> int:
    if not typed.isdecimal():
        raise InvalidArgumentError(f"The number of a row is a whole number from 0 on; got {typed}.")
    return int(typed)


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows with their numbers among all rows.

    ``places`` are the input rows that they were made from; None if that is not known.
    """

    batch: pa.RecordBatch
    numbers: list[int]
    errors: list[RowError | None]
    places: list[RowPlace | None]

    def take(self, kept: Sequence[int]) -> FoundRows:
        numbers, errors = [self.numbers[row] for row in kept], [self.errors[row] for row in kept]
        places = [self.places[row] for row in kept]
        return FoundRows(self.batch.take(pa.array(kept, pa.int64())), numbers, errors, places)


def place_of(error: RowError | None) -> RowPlace | None:
    """Return the row of a recorded failure, None if it is not known."""
    return None if error is None or error.row is None or error.source is None else RowPlace(error.source, error.row)


def joined(pieces: Sequence[FoundRows]) -> FoundRows:
    """Return the rows of several batches as one batch."""
    return FoundRows(
        pa.Table.from_batches([piece.batch for piece in pieces]).combine_chunks().to_batches()[0],
        [number for piece in pieces for number in piece.numbers],
        [error for piece in pieces for error in piece.errors],
        [place for piece in pieces for place in piece.places],
    )


def shown_rows(
    found: FoundRows, asked: RowsRequest, prompts: Mapping[str, PromptTemplate], open_ledger: OpenLedger
) -> dict[str, Any]:
    """Return rows as JSON values.

    A row alone has the messages and the usage of its prompts, by the column of their answers.
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
    if asked.is_alone and rows and asked.jump is None:
        row = found.batch.slice(0, 1)
        sent = {name: template.messages(row, ALONE) for name, template in prompts.items()}
        rows[0]["prompts"] = {name: messages for name, messages in sent.items() if messages}
        rows[0]["usage"] = _usage(row, prompts, open_ledger)
    described = [{"name": each.name, "type": str(each.dtype)} for each in Schema.from_arrow(found.batch.schema)]
    return EMPTY_PAGE | {"columns": described, "rows": rows, "facets": list(facets_of(found.batch.schema))}


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
