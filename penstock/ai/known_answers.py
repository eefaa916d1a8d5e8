"""Rows whose answers are kept: looked up a task at a time, so that only the others are asked one by one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol

from penstock.ai.conversation import Generation, Request
from penstock.ai.messages.reading import Message, is_quick, message_of
from penstock.ai.remembering import Found
from penstock.udf.callers import Unfinished

UNSETTLED = object()

Row = tuple[Any, ...]


class Remembering(Protocol):
    """A model whose answers can be looked up; ``ApiPrompter`` says what its methods do."""

    def look_up(self, requests: Sequence[Request]) -> Iterator[Found]: ...

    def look_up_texts(self, texts: Sequence[str], like: Request) -> Iterator[Found]: ...


class KnownAnswers:
    """What the rows of a task give, as far as their answers are kept.

    ``request`` makes that of a message, ``settle`` gives the result of an answer, or UNSETTLED if the talk goes on, and
    ``ask`` does all that is left to do for a row, of which something may be found already.
    """

    def __init__(
        self,
        model: Remembering,
        request: Callable[[Message], Request],
        settle: Callable[[Generation], Any],
        ask: Callable[[Row, Found | None], Awaitable[Any]],
    ) -> None:
        self._model, self._request, self._settle, self._ask = model, request, settle, ask
        self._like = request(Message(()))

    def results(self, rows: Sequence[Row]) -> list[Any]:
        """Return the result of each row, or what makes the call that gives it."""
        if rows and len(rows[0]) == 1 and all(type(row[0]) is str for row in rows):
            found = self._model.look_up_texts([row[0] for row in rows], self._like)
            return [
                self._result(row, each) if type(each) is list else Unfinished(self._ask, row, each)
                for row, each in zip(rows, found, strict=True)
            ]
        requests, results = dict[int, Request](), list[Any]()
        for number, row in enumerate(rows):
            results.append(Unfinished(self._ask, row, None))
            if all(is_quick(value) for value in row):
                try:
                    message = message_of(row)
                except Exception:  # whoever asks will say so
                    continue
                if message is None:
                    results[number] = None
                else:
                    requests[number] = self._request(message)
        for number, each in zip(requests, self._model.look_up(list(requests.values())), strict=True):
            results[number] = self._result(rows[number], each)
        return results

    def _result(self, row: Row, found: Found) -> Any:
        if isinstance(found, list):
            try:
                result = self._settle(found[0])
            except Exception:  # again when the row is asked, where it becomes the row's error
                result = UNSETTLED
            if result is not UNSETTLED:
                return result
        return Unfinished(self._ask, row, found)
