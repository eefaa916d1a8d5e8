"""Rows whose answers are kept: looked up a task at a time, so that only the others are asked one by one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol

from penstock.ai.conversation import Generation, Request
from penstock.ai.messages.message import Message, is_quick, message_of
from penstock.ai.remembering import Found
from penstock.ai.samples import RowId, RowIds, row_ids
from penstock.udf.callers import Unfinished

UNSETTLED = object()

Row = tuple[Any, ...]


class Remembering(Protocol):
    """A model whose answers can be looked up; ``ApiPrompter`` says what its methods do."""

    def look_up(self, requests: Sequence[Request], rows: RowIds = None) -> Iterator[Found]: ...

    def look_up_texts(self, texts: Sequence[str], like: Request, rows: RowIds = None) -> Iterator[Found]: ...


class KnownAnswers:
    """What the rows of a task give, as far as their answers are kept.

    ``request`` makes that of a message, ``settle`` gives the result of an answer, or UNSETTLED if the talk goes on, and
    ``finish`` does all that is left to do for a row, of which something may be found already.
    """

    def __init__(
        self,
        model: Remembering,
        request: Callable[[Message], Request],
        settle: Callable[[Generation], Any],
        finish: Callable[..., Awaitable[Any]],
    ) -> None:
        self._model, self._request, self._settle, self.finish = model, request, settle, finish
        self._like = request(Message(()))

    def results(self, rows: Sequence[Row]) -> list[Any]:
        """Return the result of each row, or what is known for the call that gives it."""
        ids = row_ids(len(rows))
        if rows and len(rows[0]) == 1 and all(type(row[0]) is str for row in rows):
            found = self._model.look_up_texts([row[0] for row in rows], self._like, ids)
            return [
                self._result(each, row_id) if type(each) is list else Unfinished(each, row_id)
                for each, row_id in zip(found, ids, strict=True)
            ]
        requests, results = dict[int, Request](), list[Any]()
        for number, row in enumerate(rows):
            results.append(Unfinished(None, ids[number]))
            if all(is_quick(value) for value in row):
                try:
                    message = message_of(row)
                except Exception:  # whoever asks will say so
                    continue
                if message is None:
                    results[number] = None
                else:
                    requests[number] = self._request(message)
        found = self._model.look_up(list(requests.values()), [ids[number] for number in requests])
        for number, each in zip(requests, found, strict=True):
            results[number] = self._result(each, ids[number])
        return results

    def _result(self, found: Found, row_id: RowId | None) -> Any:
        if isinstance(found, list):
            try:
                result = self._settle(found[0])
            except Exception:  # again when the row is asked, where it becomes the row's error
                result = UNSETTLED
            if result is not UNSETTLED:
                return result
        return Unfinished(found, row_id)


class UnknownAnswers:
    """Rows whose answers are looked up one by one; ``finish`` does all there is to do."""

    def __init__(self, finish: Callable[..., Awaitable[Any]]) -> None:
        self.finish = finish

    def results(self, rows: Sequence[Row]) -> list[Any]:
        """Return nothing but which rows they are."""
        return [Unfinished(None, row_id) for row_id in row_ids(len(rows))]
