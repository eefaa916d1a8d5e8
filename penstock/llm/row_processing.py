"""The work of a processor on one row: build the request, send it, and build the result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.ai.client.api_call import ApiCall
from penstock.ai.client.http_client import ApiClient
from penstock.ai.client.retried_calls import RetriedCalls, Retries
from penstock.ai.client.sent_calls import SentCalls
from penstock.ai.client.server_errors import beginning_of
from penstock.ai.dialogue import PromptSettings
from penstock.ai.lenient_json import parse_json
from penstock.ai.prompt import AsyncPrompts, BatchPrompts
from penstock.ai.provider import Model, Prompter, loaded
from penstock.errors import FatalError, InvalidAnswerError, InvalidArgumentError, PenstockError
from penstock.types import DataType, PartialColumn, Series

ERROR = "__inference_error__"
ROW, ANSWER = "row", "answer"

RowFunction = Callable[[dict[str, Any]], Any]


class Row:
    """The columns of a row and the fields that ``preprocess`` added, as one object because rows may have different
    fields."""

    __slots__ = ("fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def __repr__(self) -> str:
        return repr(self.fields)


class Preprocess:
    """Call the user's ``preprocess`` and add its result to the row."""

    def __init__(self, preprocess: RowFunction | None, needed: tuple[str, ...]) -> None:
        self._preprocess = preprocess
        self.needed = needed
        self.__name__ = "preprocess"

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        fields = dict(row)
        if self._preprocess is not None:
            fields |= _checked_dict("preprocess", self._preprocess(row))
        if not any(name in fields for name in self.needed):
            needed = " or ".join(map(repr, self.needed))
            raise InvalidArgumentError(
                f"preprocess must return {needed} for each row; the row has: {', '.join(fields)}."
            )
        return {ROW: Row(fields)}


class Postprocess:
    """Call the user's ``postprocess`` on answered rows. Failed rows are omitted, or kept unchanged."""

    def __init__(self, postprocess: RowFunction | None, keeps_failed: bool) -> None:
        self._postprocess = postprocess
        self._keeps_failed = keeps_failed
        self.__name__ = "postprocess"

    def __call__(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        answer = row[ANSWER]
        if answer is None:
            return []
        fields = {**row[ROW].fields, **answer}
        if ERROR not in answer and self._postprocess is not None:
            fields = dict(_checked_dict("postprocess", self._postprocess(fields)))
        if self._keeps_failed:
            fields.setdefault(ERROR, "")
        return [fields]


def _checked_dict(function: str, result: Any) -> Mapping[str, Any]:
    if not isinstance(result, Mapping):
        raise InvalidArgumentError(f"{function} must return a dict for each row; got {type(result).__name__}.")
    return result


Translate = Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]
"""Translates the sampling parameters of a row, and its other fields, to options of a request."""


class AsyncRows(AsyncPrompts):
    """Ask a model that takes one request at a time."""

    def __init__(self, model: Prompter, settings: PromptSettings, translate: Translate, keeps_failed: bool) -> None:
        super().__init__(model, settings)
        self._translate = translate
        self._keeps_failed = keeps_failed

    async def ask(self, row: Row) -> dict[str, Any]:
        async def answer(values: Sequence[Any], options: Mapping[str, Any] | None) -> Any:
            return await self.answer(*values, options=options)

        return await asked(row, self._translate, self.takes_options, self._keeps_failed, answer)


class BatchRows(BatchPrompts):
    """Ask a model that takes a batch of requests."""

    def __init__(self, model: Prompter, settings: PromptSettings, translate: Translate, keeps_failed: bool) -> None:
        super().__init__(model, settings)
        self._translate = translate
        self._keeps_failed = keeps_failed

    def ask(self, rows: Series) -> PartialColumn:
        return self.column(
            (asked(row, self._translate, self.takes_options, self._keeps_failed, self.row) for row in rows.to_pylist()),
            DataType.python(),
        )


async def asked(
    row: Row,
    translate: Translate,
    takes_options: bool,
    keeps_failed: bool,
    answer: Callable[[Sequence[Any], Mapping[str, Any] | None], Awaitable[Any]],
) -> dict[str, Any]:
    """Return the result fields of a row, or the fields of its error."""
    try:
        return answer_fields(await answer(*message_and_options(row, translate, takes_options)))
    except Exception as exc:
        return error_fields(exc, keeps_failed)


def message_and_options(
    row: Row, translate: Translate, takes_options: bool
) -> tuple[tuple[Any, ...], Mapping[str, Any] | None]:
    """Return the message of a row, and its own options if it has any."""
    fields = row.fields
    message = fields["messages"] if "messages" in fields else fields["prompt"]
    params = fields.get("sampling_params")
    if params is not None and not isinstance(params, Mapping):
        raise InvalidArgumentError(f"sampling_params is a dict for each row; got {type(params).__name__}.")
    given = {} if params is None else {name: value for name, value in params.items() if value is not None}
    if "n" in given and (isinstance(given["n"], bool) or not isinstance(given["n"], int) or given["n"] < 1):
        raise InvalidArgumentError(f"sampling_params: n must be a whole number of 1 or more; got {given['n']!r}.")
    if not takes_options and set(given) - {"n"}:
        raise InvalidArgumentError(
            "This model takes the same sampling parameters for all rows; pass sampling_params=... to the config."
        )
    return (_plain(message),), translate(given, fields) or None


def _plain(message: Any) -> Any:
    """Return a conversation as a list of dicts; a column of lists gives an array."""
    return [dict(each) for each in message] if isinstance(message, np.ndarray) and message.dtype == object else message


def answer_fields(answers: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Return the result fields of a row, by the names of Ray Data. Several answers give lists of texts."""
    answers = answers or []  # None for a row with a null message
    return {
        "generated_text": _one_or_all(answers, "value"),
        "finish_reason": _one_or_all(answers, "finish_reason"),
        "reasoning": _one_or_all(answers, "reasoning"),
        "num_input_tokens": _total(answers, "input_tokens"),
        "num_generated_tokens": _total(answers, "output_tokens"),
        "cost": _total(answers, "cost"),
        "time_taken_llm": max((each["latency_s"] for each in answers if each["latency_s"] is not None), default=None),
    }


def _one_or_all(answers: Sequence[Mapping[str, Any]], name: str) -> Any:
    values = [each[name] for each in answers]
    return values if len(values) > 1 else next(iter(values), None)


def _total(answers: Sequence[Mapping[str, Any]], name: str) -> Any:
    known = [each[name] for each in answers if each[name] is not None]
    return sum(known) if known else None


def error_fields(exc: Exception, keeps_failed: bool) -> dict[str, Any]:
    """Return the fields of a failed row, or raise its error. A FatalError ends the query in any case."""
    if not keeps_failed or isinstance(exc, FatalError):
        raise exc
    return {ERROR: f"{type(exc).__name__}: {exc}"}


class JsonClient(ApiClient):
    """Send and receive any JSON."""

    def parsed(self, raw: bytes) -> Any:
        try:
            return parse_json(raw)
        except ValueError as exc:
            raise InvalidAnswerError(f"The answer of {self.name} is not JSON: {beginning_of(raw)!r}") from exc


class HttpService(Model):
    """A server that accepts JSON by POST."""

    def __init__(self, client: JsonClient) -> None:
        self._client = client
        self._calls = RetriedCalls(SentCalls(client), Retries(client))

    def load(self) -> None:
        self._client.open()

    async def close(self) -> None:
        await self._client.close()

    async def post(self, payload: Any) -> Any:
        try:
            return (await self._calls.ask(ApiCall("", payload))).value
        except PenstockError:
            raise
        except TypeError as exc:
            raise InvalidArgumentError(f"payload cannot be sent as JSON: {exc}; send bytes as base64.") from exc


class HttpRows:
    """Post the payload of each row."""

    def __init__(self, service: HttpService, keeps_failed: bool) -> None:
        self._service = loaded(service)
        self._keeps_failed = keeps_failed

    async def ask(self, row: Row) -> dict[str, Any]:
        try:
            return {"http_response": await self._service.post(row.fields["payload"])}
        except Exception as exc:
            return error_fields(exc, self._keeps_failed)

    def close(self) -> Any:
        return self._service.close()
