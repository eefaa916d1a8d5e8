"""Failed rows: an error that names the row, or, if ``on_error`` tolerates failures, a record of it."""

from __future__ import annotations

import base64
import json
import math
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import PACKAGE_FOLDER, FatalError, ModelNotFoundError
from penstock.events.events import RowError
from penstock.expr.udf import BatchSpec, UdfSpec
from penstock.plan.stages import CallBatch, CallUdf
from penstock.storage.urls import redacted
from penstock.types.row_numbers import POSITION, ROW_NUMBER, RowPlace
from penstock.udf.sizing import Parts
from penstock.udf.user_errors import udf_error

Record = Callable[[RowError], None]

CALL_FAILURES: tuple[type[BaseException], ...] = (Exception, SystemExit)
"""Errors of a call of a user function. ``sys.exit()`` in one does not end the user's program."""

STOPPED = "the function raised StopIteration, as next() does for an empty iterator"

MAX_BINARY_NBYTES = 64 * 1024  # longer images and arrays are described instead of recorded
MAX_SHOWN_LENGTH = 200  # of a value in an error message


class Failures:
    """Apply ``on_error`` to failed rows: raise an error that names the row, or record it.

    ``values`` returns the values of one row of a batch by name, for messages and records. A ``position`` is the number
    of a row in the input of the stage, None if unknown.
    """

    def __init__(
        self, work: CallUdf | CallBatch, values: Callable[[pa.RecordBatch, int], dict[str, Any]], record: Record
    ) -> None:
        spec = work.spec
        self._row_inputs = work.row_inputs
        self.is_tolerant = spec.policy.on_error != "raise"
        self.what = describe_function(spec)
        self.num_recorded = 0
        self._name = spec.name
        self._is_batch = spec.target.is_batch
        self._unit = "group" if isinstance(spec, BatchSpec) and spec.keys else "row"
        self._remedy = f"without such {self._unit}s" if isinstance(spec, BatchSpec) else "with null for such rows"
        self._values = values
        self._record = record

    def row(self, batch: pa.RecordBatch, row: int, position: int | None, exc: BaseException) -> None:
        """Handle a row on which the function failed."""
        if isinstance(exc, FatalError):
            raise exc
        if not self.is_tolerant:
            raise udf_error(self.message(batch, row, position, exc), exc) from exc
        self.record(batch, row, position, exc)

    def part(self, part: pa.RecordBatch, position: int | None, parts: Parts, exc: BaseException) -> bool:
        """Handle a part of a batch on which a batch function failed.

        Return False if ``parts`` yields it again in smaller parts, True if its rows failed.
        """
        if isinstance(exc, FatalError):
            raise exc
        if parts.has_shrunk(exc):
            return False
        if not self.is_tolerant:
            raise udf_error(self.message(part, 0, position, exc), exc) from exc
        if parts.split():
            return False
        for row in range(part.num_rows):
            self.record(part, row, None if position is None else position + row, exc)
        return True

    def partial(self, part: pa.RecordBatch, position: int, failures: Mapping[int, Exception]) -> None:
        """Handle the rows that a built-in batch function reports as failed."""
        for row, exc in sorted(failures.items()):
            if isinstance(exc, FatalError):
                raise exc
            if not self.is_tolerant:
                place, text = self._place(part, row, position + row), str(exc) or type(exc).__name__
                message = f"{self._name} failed on {place}: {text}"
                raise udf_error(self._advised(message, exc, " " if text.endswith(".") else ". "), exc) from exc
            self.record(part, row, position + row, exc)

    def record(self, batch: pa.RecordBatch, row: int, position: int | None, exc: BaseException) -> None:
        self.num_recorded += 1
        position = _position(batch, row, position)
        is_one = position is not None or batch.num_rows == 1  # else several rows failed together
        place = self._place(batch, row, position) if is_one else None
        self._record(row_error_of(self._name, self._values(batch, row), exc, place, position))

    def message(self, batch: pa.RecordBatch, row: int, position: int | None, exc: BaseException) -> str:
        """Return the text of an error, with the values of the row unless a batch function failed on several rows."""
        if batch.num_rows == 1 or not self._is_batch:
            where = f"{self._place(batch, row, position) or f'the {self._unit}'} ({self._shown(batch, row)})"
        else:
            first = self._place(batch, 0, position)
            where = f"a batch of {batch.num_rows} rows" + (f" (from {first} on)" if first else "")
        text = "\n".join(
            [f"{self.what} failed on {where}: {type(exc).__name__}: {exc}", *getattr(exc, "__notes__", ())]
        )
        return self._advised(text, exc, "\n")

    def _advised(self, text: str, exc: BaseException, separator: str) -> str:
        """Return a message with the advice to continue without the row, unless every row would fail like it."""
        if isinstance(exc, ModelNotFoundError):
            return text
        return f'{text}{separator}To continue {self._remedy}, set on_error="null"; df.errors() then lists them.'

    def _place(self, batch: pa.RecordBatch, row: int, position: int | None) -> RowPlace | None:
        """Return a row's place: in the query's input if the row has a number, else in the function's input."""
        if self._row_inputs is not None:
            return self._row_inputs.place(batch.column(ROW_NUMBER)[row].as_py())
        position = _position(batch, row, position)
        if position is None or self._unit == "group":
            return None
        return RowPlace(f"the input of {self._name}", position)

    def _shown(self, batch: pa.RecordBatch, row: int) -> str:
        values = self._values(batch, row).items()
        return ", ".join(f"{name}={_shortened(value)}" for name, value in values) or "(no columns)"


def _position(batch: pa.RecordBatch, row: int, position: int | None) -> int | None:
    """Return a row's position in the input of the stage. A row that was picked from its batch has it in a column."""
    return batch.column(POSITION)[row].as_py() if POSITION in batch.schema.names else position


def describe_function(spec: UdfSpec | BatchSpec) -> str:
    """Return the name of a function in messages: ``UDF 'f'``, ``Batch UDF 'f'`` or ``map_batches(f)``."""
    if isinstance(spec, BatchSpec):
        return f"{spec.verb}({spec.name})"
    return f"{'Batch UDF' if spec.target.is_batch else 'UDF'} {spec.name!r}"


def row_error_of(
    operator: str,
    values: Mapping[str, Any],
    exc: BaseException,
    place: RowPlace | None = None,
    position: int | None = None,
) -> RowError:
    """Return the record of a failed row. Its traceback starts at the user's code."""
    row, source = (None, None) if place is None else (place.number, place.input)
    message, trace = _encodable(str(exc)), _traceback_text(exc)
    return RowError(operator, as_json(values), type(exc).__name__, message, trace, row, source, position)


def as_json(values: Mapping[str, Any]) -> str:
    """Return values of any type by name as JSON.

    >>> as_json({"text": "é", "score": float("nan"), "raw": b"ab"})
    '{"text": "é", "score": null, "raw": "YWI="}'
    """
    return json.dumps(_plain(values), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Return a value as a JSON type, as text if JSON has no type for it."""
    match value:
        case None | bool() | int() | str():
            return _encodable(value) if isinstance(value, str) else value
        case float():
            return value if math.isfinite(value) else None
        case bytes() | bytearray() | memoryview():
            data = bytes(value)
            return base64.b64encode(data).decode() if len(data) <= MAX_BINARY_NBYTES else f"<{len(data)} bytes>"
        case Mapping():
            return {_encodable(str(key)): _plain(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(each) for each in value]
        case np.generic():
            return _plain(value.item()) if not isinstance(value.item(), np.generic) else str(value)
        case np.ndarray():
            is_short = value.nbytes <= MAX_BINARY_NBYTES
            return _plain(value.tolist()) if is_short else f"<array of {value.dtype}, shape {value.shape}>"
        case _:
            return _encodable(value.isoformat() if hasattr(value, "isoformat") else repr(value))


def _encodable(text: str) -> str:
    """Return text without lone surrogates, which neither JSON nor Arrow can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def _shortened(value: Any) -> str:
    text = redacted(repr(value))
    return text if len(text) <= MAX_SHOWN_LENGTH else text[: MAX_SHOWN_LENGTH - 3] + "..."


def _traceback_text(exc: BaseException) -> str:
    frames = exc.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        frames = frames.tb_next
    return _encodable("".join(traceback.format_exception(type(exc), exc, frames or exc.__traceback__)))
